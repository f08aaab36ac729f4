"""Fetch config files, and nothing else, from Hugging Face or ModelScope."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from tensor_cast.errors import ModelingError, did_you_mean
from tensor_cast.models.config_file import MAX_CONFIG_BYTES

_TIMEOUT_S = 5


class HubError(Exception):
    """Why a hub did not give a file, as the end of a sentence; the caller knows where else it has looked."""

    def __init__(self, reason: str, *, exit_status: int = 1) -> None:
        super().__init__(reason)
        self.exit_status = exit_status


def fetch(remote_source: str, model_id: str, filename: str) -> Path | None:
    """A local copy of ``filename`` of the model ``org/name``, from the hub's own cache when it is there.

    None when the model has no such file. Raises HubError when the hub has no such model, is out of reach, refuses
    access, or has a file larger than a config may be.
    """
    return _fetcher(remote_source)(model_id, filename)


def hub_address(remote_source: str) -> str:
    """The address that a person would open."""
    if remote_source == "modelscope":
        return "https://modelscope.cn"
    return os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")


def _fetcher(remote_source: str) -> Callable[[str, str], Path | None]:
    if remote_source not in _FETCHERS:
        raise ModelingError(
            f"There is no remote source {remote_source!r}: use {' or '.join(_FETCHERS)}."
            + did_you_mean(remote_source, _FETCHERS)
        )
    return _FETCHERS[remote_source]


def _from_huggingface(model_id: str, filename: str) -> Path | None:
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url, try_to_load_from_cache
    from huggingface_hub.errors import (
        EntryNotFoundError,
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
    )
    from huggingface_hub.utils.tqdm import disable_progress_bars

    address = hub_address("huggingface")
    try:
        cached = try_to_load_from_cache(model_id, filename)
        if isinstance(cached, str):
            return Path(cached)
        # The metadata is asked for first because it tells the size, and because huggingface_hub (2.4) repeats a
        # failing download five times, over 23 s, but not this request.
        metadata = get_hf_file_metadata(hf_hub_url(model_id, filename, endpoint=address), timeout=_TIMEOUT_S)
        if metadata.size is not None and metadata.size > MAX_CONFIG_BYTES:
            raise HubError(
                f"its {filename} on {address} has {metadata.size / 2**20:,.0f} MiB, more than the "
                f"{MAX_CONFIG_BYTES // 2**20} MiB that a model's config may have",
                exit_status=2,
            )
        disable_progress_bars()
        return Path(hf_hub_download(model_id, filename, endpoint=address, etag_timeout=_TIMEOUT_S))
    except HubError:
        raise
    except OfflineModeIsEnabled as error:
        raise HubError("HF_HUB_OFFLINE forbids to ask the hub: unset it, or give the path of a config.json") from error
    except GatedRepoError as error:
        raise HubError(
            f"it is gated: accept its licence on {address}/{model_id} and set HF_TOKEN, or give a config.json's path"
        ) from error
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise _no_such_model(address) from error
    except EntryNotFoundError:
        return None
    except HfHubHTTPError as error:
        raise _no_such_model(address) if _status(error) == 404 else _unreachable(address, error) from error
    except Exception as error:  # huggingface_hub passes its HTTP client's errors on, and the client varies by release
        raise _unreachable(address, error) from error


def _from_modelscope(model_id: str, filename: str) -> Path | None:
    for directory in _modelscope_cache_directories(model_id):
        if (cached := directory / filename).is_file():
            return cached
    try:
        download = import_module("modelscope.hub.file_download").model_file_download
        not_found = import_module("modelscope.hub.errors").NotExistError
    except ImportError as error:
        raise HubError("asking ModelScope needs its package: pip install msmodeling[modelscope]") from error
    address = hub_address("modelscope")
    try:
        return Path(download(model_id, filename))
    except not_found:
        return None
    except Exception as error:  # modelscope passes its HTTP client's errors on
        raise _no_such_model(address) if _status(error) == 404 else _unreachable(address, error) from error


def _modelscope_cache_directories(model_id: str) -> list[Path]:
    """Where releases of modelscope keep a model; a dot in its name is written as three underscores."""
    root = os.environ.get("MODELSCOPE_CACHE")
    cache = Path(root) if root else Path.home() / ".cache" / "modelscope" / "hub"
    organisation, _, name = model_id.partition("/")
    parents = (cache / "models", cache / "hub" / "models", cache)
    return [parent / organisation / name.replace(".", "___") for parent in parents]


_FETCHERS = {"huggingface": _from_huggingface, "modelscope": _from_modelscope}
REMOTE_SOURCES = tuple(_FETCHERS)


def _status(error: Exception) -> int | None:
    status: int | None = getattr(getattr(error, "response", None), "status_code", None)
    return status


def _no_such_model(address: str) -> HubError:
    return HubError(f"{address} has no such model, or only for those who set HF_TOKEN", exit_status=2)


def _unreachable(address: str, error: Exception) -> HubError:
    reason = str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
    return HubError(f"{address} could not be asked ({reason}): check the network, or give the path of a config.json")
