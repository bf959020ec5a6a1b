"""Checkpoint folders for benchmarks: the demo's, and others with its tokenizer."""

import json
import pathlib
import shutil
import subprocess
import sys
from typing import Any

from openwebrl_jax.models import init, load, sizes

WIDE = {
    "hidden_size": 512,
    "intermediate_size": 1536,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 64,
}
ROPE = {"rope_type": "default", "rope_theta": 1e6, "mrope_interleaved": True}


def make_tiny(out: pathlib.Path) -> None:
    """The demo's checkpoint."""
    command = [sys.executable, "-m", "launch.make_tiny", f"--out={out}"]
    subprocess.run(command, check=True)


def make_folder(source: pathlib.Path, out: pathlib.Path, text: dict[str, Any]) -> None:
    """A checkpoint of other sizes, with the source's tokenizer and tower."""
    shutil.copytree(source, out, ignore=shutil.ignore_patterns("*.safetensors"))
    config = json.loads((source / "config.json").read_text())
    pairs = text["head_dim"] // 2
    section = [pairs - 2 * (pairs // 3), pairs // 3, pairs // 3]
    config["text_config"] |= text | {
        "rope_parameters": ROPE | {"mrope_section": section},
        "max_position_embeddings": 65_536,
    }
    config["vision_config"]["out_hidden_size"] = text["hidden_size"]
    (out / "config.json").write_text(json.dumps(config))
    spec = json.loads((source / "preprocessor_config.json").read_text())
    spec["size"] = {"shortest_edge": 1024, "longest_edge": 1 << 20}
    (out / "preprocessor_config.json").write_text(json.dumps(spec))
    shape = sizes.load_sizes(out)
    load.save_model(out, shape, init.init_model(shape, 0), out)
