"""Fetch config files, and nothing else, from Hugging Face or ModelScope."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from tensor_cast.errors import ModelingError, did_you_mean
from tensor_cast.models.config_file import MAX_CONFIG_BYTES

_TIMEOUT_S = 5
_NOT_SHOWN = (401, 403, 404)


class HubError(Exception):
    """Why a hub did not give a file, as the end of a sentence; the caller knows where else it has looked."""


def cached(remote_source: str, model_id: str, filename: str) -> Path | None:
    """The copy of ``filename`` of the model ``org/name`` in the hub's own cache, if there is one."""
    return _source(remote_source).cached(model_id, filename)


def fetch(remote_source: str, model_id: str, filename: str) -> Path | None:
    """A local copy of ``filename`` of the model ``org/name``, from the hub's own cache when it is there.

    None when the model has no such file. Raises HubError when the hub has no such model, is out of reach, refuses
    access, or has a file larger than a config may be.
    """
    source = _source(remote_source)
    return source.cached(model_id, filename) or source.download(model_id, filename)


def hub_address(remote_source: str) -> str:
    """The address that a person would open."""
    if remote_source == "modelscope":
        return "https://modelscope.cn"
    return os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")


@dataclass(frozen=True)
class _Source:
    cached: Callable[[str, str], Path | None]
    download: Callable[[str, str], Path | None]


def _source(remote_source: str) -> _Source:
    if remote_source not in _SOURCES:
        raise ModelingError(
            f"There is no remote source {remote_source!r}: use {' or '.join(_SOURCES)}."
            + did_you_mean(remote_source, _SOURCES)
        )
    return _SOURCES[remote_source]


def _cached_by_huggingface(model_id: str, filename: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        path = try_to_load_from_cache(model_id, filename)
    except HFValidationError:
        return None
    return Path(path) if isinstance(path, str) else None


def _download_from_huggingface(model_id: str, filename: str) -> Path | None:
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url
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
        # The metadata is asked for first because it tells the size, and because huggingface_hub (2.4) repeats a
        # failing download five times, over 23 s, but not this request.
        metadata = get_hf_file_metadata(hf_hub_url(model_id, filename, endpoint=address), timeout=_TIMEOUT_S)
        if metadata.size is not None and metadata.size > MAX_CONFIG_BYTES:
            raise HubError(
                f"its {filename} on {address} has {metadata.size / 2**20:,.0f} MiB, more than the "
                f"{MAX_CONFIG_BYTES // 2**20} MiB that a model's config may have"
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
        raise _no_such_model(address) if _status(error) in _NOT_SHOWN else _unreachable(address, error) from error
    except Exception as error:  # huggingface_hub passes its HTTP client's errors on, and the client varies by release
        raise _unreachable(address, error) from error


def _cached_by_modelscope(model_id: str, filename: str) -> Path | None:
    """Releases of modelscope keep a model in one of three places; a dot in its name becomes three underscores."""
    root = os.environ.get("MODELSCOPE_CACHE")
    cache = Path(root) if root else Path.home() / ".cache" / "modelscope" / "hub"
    organisation, _, name = model_id.partition("/")
    directory = Path(organisation, name.replace(".", "___"))
    places = (parent / directory / filename for parent in (cache / "models", cache / "hub" / "models", cache))
    return next((place for place in places if place.is_file()), None)


def _download_from_modelscope(model_id: str, filename: str) -> Path | None:
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
        raise _no_such_model(address) if _status(error) in _NOT_SHOWN else _unreachable(address, error) from error


_SOURCES = {
    "huggingface": _Source(_cached_by_huggingface, _download_from_huggingface),
    "modelscope": _Source(_cached_by_modelscope, _download_from_modelscope),
}
REMOTE_SOURCES = tuple(_SOURCES)


def _status(error: Exception) -> int | None:
    status: int | None = getattr(getattr(error, "response", None), "status_code", None)
    return status


def _no_such_model(address: str) -> HubError:
    return HubError(f"{address} has no such model, or only for those who set HF_TOKEN")


def _unreachable(address: str, error: BaseException) -> HubError:
    # The first error of the chain says what happened; the HTTP clients' own texts wrap it in their class names.
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    reason = str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
    return HubError(f"{address} could not be asked ({reason}): check the network, or give the path of a config.json")
