"""One database file as text: reading it with clear errors, writing it byte for byte as the format says."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tensor_cast.errors import ModelingError
from tensor_cast.performance_model.profiling_database.schema import modern_header

_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
_PACKED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"PK\x03\x04": "zip"}
"""First bytes of packed files."""
csv.field_size_limit(1 << 30)


@dataclass
class Table:
    """Columns by today's names and rows of text, every row as wide as the header."""

    columns: list[str]
    rows: list[list[str]]

    def cells(self, row: Sequence[str]) -> dict[str, str]:
        """A row as column name to text."""
        return dict(zip(self.columns, row, strict=True))


def read_bytes(path: Path) -> bytes:
    """The content of a CSV file without a byte-order mark.

    Raises:
        ModelingError: it cannot be read, or what it holds is no comma-separated UTF-8 text.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise read_failure(path, error) from None
    check_start(path, content[:4096])
    if b"\x00" in content:
        raise ModelingError(f"{path} holds NUL bytes: it is damaged, restore it.")
    return content.removeprefix(b"\xef\xbb\xbf")


def read_failure(path: Path, error: OSError) -> ModelingError:
    """The sentence for a file that cannot be read."""
    if isinstance(error, FileNotFoundError):
        return ModelingError(f"{path} does not exist.")
    if isinstance(error, PermissionError):
        return ModelingError(f"{path} cannot be read: there is no permission.", exit_status=1)
    return ModelingError(f"{path} cannot be read: {error.strerror or error}.", exit_status=1)


def check_start(path: Path, start: bytes) -> None:
    """Refuse what is no comma-separated UTF-8 file, judged by its first bytes.

    Raises:
        ModelingError: it is empty, a Git LFS pointer, packed, binary, UTF-16, or its lines or cells are separated by
            something else.
    """
    if not start.strip():
        raise ModelingError(f"{path} is empty.")
    if start.startswith(_LFS_POINTER):
        raise ModelingError(f'{path} is a Git LFS pointer, not the data: fetch it with "git lfs pull".')
    packed = next((name for magic, name in _PACKED.items() if start.startswith(magic)), None)
    if packed is not None:
        raise ModelingError(f"{path} is packed ({packed}): unpack it, and give what comes out.")
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ModelingError(f'{path} is UTF-16 text: save it again as "CSV UTF-8".')
    if b"\x00" in start:
        raise ModelingError(f"{path} is a binary file, not a CSV.")
    header = start.split(b"\n", 1)[0].removesuffix(b"\r")
    if b"\r" in header:
        raise ModelingError(f'{path} has lines that end with CR alone: save it again as "CSV UTF-8".')
    if b"," not in header and (b";" in header or b"\t" in header):
        raise ModelingError(f"{path} is not separated by commas: save it again with a comma as separator.")


def read_table(path: Path) -> Table:
    """A database file, with the column names of older generations brought up to date.

    Raises:
        ModelingError: it cannot be read, or a row is not as wide as the header.
    """
    content = read_bytes(path)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise ModelingError(f'{path} is not UTF-8 text: save it again as "CSV UTF-8".') from None
    reader = csv.reader(io.StringIO(text, newline=""))
    columns = modern_header(next(reader))
    repeated = {name for name in columns if columns.count(name) > 1}
    if repeated:
        raise ModelingError(f"{path} has the column {', '.join(map(repr, sorted(repeated)))} more than once.")
    width = len(columns)
    rows = []
    for row in reader:
        if len(row) == width:
            rows.append(row)
        elif row:
            raise ModelingError(
                f"{path}, line {reader.line_num}: {len(row)} cells where the header has {width}; "
                "the file is damaged, restore it."
            )
    return Table(columns, rows)


def table_bytes(table: Table) -> bytes:
    """The table as a file: UTF-8 without byte-order mark, CRLF, quotes only where needed."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\r\n", quoting=csv.QUOTE_MINIMAL)
    writer.writerow(table.columns)
    writer.writerows(table.rows)
    return text.getvalue().encode("utf-8")
