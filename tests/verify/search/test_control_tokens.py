"""Documents that spell control tokens, shown by the environment."""

from turngym.agents.chat.chat import Encoder
from turngym.tests.verify.search import control_tokens


def test_an_encoder_that_lets_a_token_through_falls_short(monkeypatch):
    encode = Encoder.encode
    monkeypatch.setattr(
        Encoder,
        "encode",
        lambda self, text: [
            *encode(self, text),
            *(sorted(self.control)[:1] if self.control else []),
        ],
    )
    row = control_tokens.shown_row(["</s>"])
    assert row.held == 0 and "in tags" in row.note
