"""A hub of data sets in a folder, for the rooms that read them."""

import json

import pytest


@pytest.fixture(scope="module")
def hub(request, tmp_path_factory):
    """A folder with the data sets of the module's CARDS, which the library reads in place of the hub's.

    CARDS is path -> config -> split -> rows. Nothing else can be reached.
    """
    datasets = pytest.importorskip("datasets")
    folder = tmp_path_factory.mktemp("hub")
    for path, configs in request.module.CARDS.items():
        card = {"configs": []}
        for config, splits in configs.items():
            for split, rows in splits.items():
                file = folder / path / config / f"{split}.jsonl"
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text("".join(json.dumps(row) + "\n" for row in rows))
            files = [{"split": split, "path": f"{config}/{split}.jsonl"} for split in splits]
            card["configs"].append({"config_name": config, "data_files": files})
        (folder / path / "README.md").write_text(f"---\n{json.dumps(card)}\n---\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", folder / "cache")
        patch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
        patch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        datasets.disable_progress_bars()
        yield folder
        datasets.enable_progress_bars()
