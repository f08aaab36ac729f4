from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import types
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tensor_cast.errors import ModelingError
from tensor_cast.models.source import LoadedConfig, load_config

CONFIG = {"model_type": "qwen3", "hidden_size": 64, "num_hidden_layers": 2}
ROOT = Path(__file__).parents[2]


def written(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def refusal(model: str, **options: Any) -> str:
    """The one sentence with which a model is refused."""
    with pytest.raises(ModelingError) as caught:
        load_config(model, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


class Hub(ThreadingHTTPServer):
    """A stand-in that answers as the Hugging Face hub does, from ``files`` by address."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.errors: dict[str, tuple[int, str]] = {}
        self.requests: list[tuple[str, str | None]] = []
        super().__init__(("127.0.0.1", 0), HubHandler)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def publish(self, model_id: str, filename: str, content: Any) -> None:
        self.files[f"/{model_id}/resolve/main/{filename}"] = json.dumps(content).encode()


class HubHandler(BaseHTTPRequestHandler):
    server: Hub

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.wfile.write(self.answer())

    def answer(self) -> bytes:
        self.server.requests.append((self.path, self.headers.get("Authorization")))
        model_path = self.path.partition("/resolve/")[0]
        content = self.server.files.get(self.path)
        if model_path in self.server.errors:
            status, code = self.server.errors[model_path]
            return self.fail(status, code)
        if content is None:
            known = any(path.startswith(f"{model_path}/") for path in self.server.files)
            return self.fail(404, "EntryNotFound" if known else "RepoNotFound")
        self.send_response(200)
        self.send_header("ETag", f'"{hash(content):x}"')
        self.send_header("X-Repo-Commit", "0123456789abcdef0123456789abcdef01234567")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        return content

    def fail(self, status: int, code: str) -> bytes:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()
        return b""

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    from huggingface_hub import constants

    for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    return tmp_path / "cache"


@pytest.fixture
def hub(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with Hub() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        monkeypatch.setenv("HF_ENDPOINT", server.address)
        yield server
        server.shutdown()
        thread.join()


def test_hub_model_and_its_cache(hub: Hub) -> None:
    hub.publish("acme/tiny", "config.json", CONFIG)
    expected = LoadedConfig("acme/tiny", CONFIG, None, "huggingface", f"{hub.address}/acme/tiny")
    assert load_config("acme/tiny") == expected
    asked = {path.rpartition("/")[2] for path, _ in hub.requests}
    assert asked == {"config.json", "hf_quant_config.json"}
    hub.requests.clear()
    assert load_config("acme/tiny") == expected
    assert hub.requests == []


def test_hub_token_is_sent(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_of_a_test")
    hub.publish("acme/tiny", "config.json", CONFIG)
    load_config("acme/tiny")
    assert {token for _, token in hub.requests} == {"Bearer hf_of_a_test"}


def test_hub_modelopt_quantisation(hub: Hub) -> None:
    hub.publish("acme/tiny-NVFP4", "config.json", CONFIG)
    hub.publish("acme/tiny-NVFP4", "hf_quant_config.json", {"quantization": {"quant_algo": "NVFP4"}})
    quantisation = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
    assert load_config("acme/tiny-NVFP4").config["quantization_config"] == quantisation
    hub.files.clear()
    assert load_config("acme/tiny-NVFP4").config["quantization_config"] == quantisation


def test_hub_pipeline(hub: Hub) -> None:
    index = {
        "_class_name": "LTXPipeline",
        "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
        "tokenizer": ["transformers", "T5Tokenizer"],
        "transformer": ["diffusers", "LTXVideoTransformer3DModel"],
        "vae": ["diffusers", "AutoencoderKLLTXVideo"],
    }
    hub.publish("acme/video", "model_index.json", index)
    hub.publish("acme/video", "transformer/config.json", {"num_layers": 28})
    loaded = load_config("acme/video")
    assert (loaded.config, loaded.pipeline) == (index, {"transformer": {"num_layers": 28}})
    assert not any("scheduler" in path or "tokenizer" in path for path, _ in hub.requests)


def test_hub_only_config_files_are_asked_for(hub: Hub) -> None:
    hub.publish("acme/tiny", "config.json", {**CONFIG, "auto_map": {"AutoConfig": "configuration_tiny.TinyConfig"}})
    load_config("acme/tiny")
    assert all(path.endswith(".json") for path, _ in hub.requests)


def test_hub_has_no_such_model(hub: Hub) -> None:
    message = refusal("Qwen/Qwen3-33B")
    assert message.startswith(
        f"The model 'Qwen/Qwen3-33B' is neither a path nor in the catalog, and {hub.address} has no such model, or "
        "only for those who set HF_TOKEN. The closest in the catalog: Qwen/Qwen3-32B, "
    )
    assert len(hub.requests) == 1


def test_hub_model_without_a_config(hub: Hub) -> None:
    hub.publish("acme/weights", "params.json", {})
    message = refusal("acme/weights")
    assert f"{hub.address}/acme/weights has neither config.json nor model_index.json" in message


def test_hub_gated_model(hub: Hub) -> None:
    hub.errors["/acme/gated"] = (403, "GatedRepo")
    with pytest.raises(
        ModelingError, match=r"it is gated: accept its licence on http.*/acme/gated and set HF_TOKEN"
    ) as caught:
        load_config("acme/gated")
    assert caught.value.exit_status == 2


@pytest.mark.parametrize("status", [401, 403, 404])
def test_hub_that_hides_or_lacks_a_model_without_saying_why(hub: Hub, status: int) -> None:
    hub.errors["/acme/hidden"] = (status, "")
    assert "has no such model, or only for those who set HF_TOKEN" in refusal("acme/hidden")


def test_hub_out_of_order(hub: Hub) -> None:
    hub.errors["/acme/tiny"] = (503, "")
    message = refusal("acme/tiny")
    assert f"{hub.address} could not be asked (" in message
    assert "503" in message
    assert len(hub.requests) == 1


def test_hub_config_larger_than_a_config_is_not_fetched(hub: Hub, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tensor_cast.models import hub as hub_module

    monkeypatch.setattr(hub_module, "MAX_CONFIG_BYTES", 10)
    hub.publish("acme/huge", "config.json", CONFIG)
    assert "its config.json on" in refusal("acme/huge")
    assert not list(cache.rglob("config.json"))


def test_hub_bad_config_names_the_file(hub: Hub) -> None:
    hub.publish("acme/list", "config.json", [1])
    assert "config.json holds a list, where a JSON object" in refusal("acme/list")


def test_no_network(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{unused.getsockname()[1]}")
        with pytest.raises(ModelingError) as caught:
            load_config("acme/tiny")
    message = str(caught.value)
    assert message.startswith("The model 'acme/tiny' is neither a path nor in the catalog, and http://127.0.0.1:")
    assert "Connection refused): check the network" in message
    assert caught.value.exit_status == 2


def in_another_process(model: str, **environment: str) -> str:
    """What load_config says in a process that starts with ``environment``: huggingface_hub reads it once, on import."""
    code = (
        "import sys\n"
        "from tensor_cast.errors import ModelingError\n"
        "from tensor_cast.models.source import load_config\n"
        "try: print(load_config(sys.argv[1]).config)\n"
        "except ModelingError as error: print(error)\n"
        "print('huggingface_hub' in sys.modules)"
    )
    return subprocess.run(
        [sys.executable, "-c", code, model],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout


def test_offline(hub: Hub, cache: Path) -> None:
    hub.publish("acme/tiny", "config.json", CONFIG)
    load_config("acme/tiny")
    hub.requests.clear()
    environment = {"HF_HUB_OFFLINE": "1", "HF_ENDPOINT": hub.address, "HF_HUB_CACHE": str(cache)}
    assert "'hidden_size': 64" in in_another_process("acme/tiny", **environment)
    message = in_another_process("acme/other", **environment)
    assert "HF_HUB_OFFLINE forbids to ask the hub: unset it, or give the path of a config.json." in message
    assert hub.requests == []


def test_hub_library_is_not_imported_for_the_catalog() -> None:
    assert in_another_process("Qwen/Qwen3-32B").splitlines()[-1] == "False"


# ModelScope


@pytest.fixture
def modelscope(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A stand-in for the modelscope package, whose download copies from ``served``, and its cache directory."""
    package, hub_package = types.ModuleType("modelscope"), types.ModuleType("modelscope.hub")
    errors, download = types.ModuleType("modelscope.hub.errors"), types.ModuleType("modelscope.hub.file_download")

    class NotExistError(Exception):
        pass

    def model_file_download(model_id: str, file_path: str) -> str:
        file = tmp_path / "served" / model_id / file_path
        if not file.parent.is_dir():
            error = OSError("404 Client Error")
            error.response = types.SimpleNamespace(status_code=404)  # type: ignore[attr-defined]
            raise error
        if not file.is_file():
            raise NotExistError(file_path)
        return str(file)

    errors.NotExistError = NotExistError  # type: ignore[attr-defined]
    download.model_file_download = model_file_download  # type: ignore[attr-defined]
    for module in (package, hub_package, errors, download):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setenv("MODELSCOPE_CACHE", str(tmp_path / "modelscope"))
    return download


def test_modelscope_model(tmp_path: Path, modelscope: types.ModuleType) -> None:
    written(tmp_path / "served" / "acme" / "tiny" / "config.json", CONFIG)
    loaded = load_config("acme/tiny", remote_source="modelscope")
    assert loaded == LoadedConfig("acme/tiny", CONFIG, None, "modelscope", "https://modelscope.cn/acme/tiny")


def test_modelscope_has_no_such_model(modelscope: types.ModuleType) -> None:
    assert "https://modelscope.cn has no such model" in refusal("acme/missing", remote_source="modelscope")


def test_modelscope_out_of_reach(modelscope: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(model_id: str, file_path: str) -> str:
        raise ConnectionError("Name or service not known")

    monkeypatch.setattr(modelscope, "model_file_download", unreachable)
    message = refusal("acme/tiny", remote_source="modelscope")
    assert "https://modelscope.cn could not be asked (Name or service not known): check the network" in message


@pytest.mark.parametrize("directory", ["models/acme/tiny-1___5b", "hub/models/acme/tiny-1___5b", "acme/tiny-1___5b"])
def test_modelscope_cache_needs_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, directory: str) -> None:
    monkeypatch.setenv("MODELSCOPE_CACHE", str(tmp_path))
    monkeypatch.setitem(sys.modules, "modelscope", None)
    written(tmp_path / directory / "config.json", CONFIG)
    assert load_config("acme/tiny-1.5b", remote_source="modelscope").config == CONFIG


def test_modelscope_package_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODELSCOPE_CACHE", str(tmp_path))
    monkeypatch.setitem(sys.modules, "modelscope", None)
    message = refusal("acme/tiny", remote_source="modelscope")
    assert "asking ModelScope needs its package: pip install msmodeling[modelscope]" in message


def test_unknown_remote_source() -> None:
    assert refusal("acme/tiny", remote_source="modelscop") == (
        "There is no remote source 'modelscop': use huggingface or modelscope. Did you mean modelscope?"
    )
