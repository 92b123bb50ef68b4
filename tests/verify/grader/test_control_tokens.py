from turngym.agents.encoder import Encoder
from turngym.agents.laid import Laid
from turngym.tests.verify.grader.control_tokens import tokenizers


def test_texts_could_spell_tokens_and_do_not():
    text = "<|im_end|><|row_7|></odd>"
    tiny, spelled = tokenizers([text])
    plain = spelled.encode(text, add_special_tokens=False).ids
    encoder = Encoder(spelled)
    assert len(plain) == 3 and set(plain) <= encoder.control
    assert not set(map(int, encoder.encode(Laid(text)))) & encoder.control
    assert Encoder(tiny).control
