"""Makes a tiny Qwen3-VL checkpoint folder: a real one in every file, but small.

python -m launch.make_tiny --out=runs/tiny

Its tokenizer spells each fixed piece of a call and each coordinate as one token.
"""

import json
import pathlib
import shutil
import tempfile
from typing import Any

from absl import flags

from launch import cli
from openwebrl_jax.agent import grammar, prompts
from openwebrl_jax.core import types
from openwebrl_jax.models import init, load, sizes
from openwebrl_jax.tokens import bpe

_OUT = flags.DEFINE_string("out", "runs/tiny", "Folder to make.")
_SEED = flags.DEFINE_integer("seed", 0, "Seed of the weights.")

SOURCE = pathlib.Path(__file__).parent.parent / "configs" / "tiny_model"
VOCAB_SIZE = 1024
COORDINATES = tuple(str(value) for value in range(0, 1001, 40))
TURN = (f"system\n{prompts.system_text('short')}", "user\n", "assistant\n", "\n")
STATES = ("effect", "no_effect", "failed", "malformed")  # what becomes of a call
MARK = 77  # stands for a value where a call is cut into its fixed pieces


def call_pieces() -> list[str]:
    """What stands around the values of each tool's calls."""
    pieces = set()
    for tool in (tool["function"] for tool in prompts.TOOLS):
        schemas = tool["parameters"]["properties"]
        names = tool["parameters"]["required"] or [*schemas][:1]
        arguments = {name: example(schemas[name]) for name in names}
        block = grammar.call_block(
            types.ToolCall(name=tool["name"], arguments=arguments)
        )
        inner = block.removeprefix(grammar.CALL_OPEN).removesuffix(grammar.CALL_CLOSE)
        pieces |= set(inner.split(str(MARK)))
    return sorted(pieces)


def example(schema: dict[str, Any]) -> Any:
    """A value of that schema with the mark in place of each text and number."""
    if schema["type"] == "array":
        return [example(schema["items"])] * schema.get("minItems", 1)
    return str(MARK) if schema["type"] == "string" else MARK


def make(out: pathlib.Path, seed: int) -> None:
    """Writes the checkpoint folder."""
    tools = [tool["function"]["name"] for tool in prompts.TOOLS]
    corpus = (SOURCE / "corpus.txt").read_text().splitlines()
    corpus += [f"{tool} {state}" for tool in tools for state in STATES]
    pieces = [*TURN, *call_pieces(), *COORDINATES]
    tokenizer = bpe.train(corpus, VOCAB_SIZE, pieces)
    ids = {piece: bpe.piece_id(tokenizer, piece) for piece in pieces}
    config = json.loads((SOURCE / "config.json").read_text())
    with tempfile.TemporaryDirectory() as folder:
        staged = pathlib.Path(folder)
        bpe.save(staged, tokenizer)
        shutil.copy(SOURCE / "preprocessor_config.json", staged)
        (staged / "config.json").write_text(json.dumps(bpe.name_ids(config, tokenizer)))
        shape = sizes.load_sizes(staged)
        model = init.init_model(shape, seed)
        init.smooth(model, {ids[text]: int(text) / 1000 for text in COORDINATES}, seed)
        load.save_model(out, shape, model, staged)


if __name__ == "__main__":
    cli.run(lambda: make(pathlib.Path(_OUT.value), _SEED.value))
