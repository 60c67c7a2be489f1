"""--storage: files at a URI (file, s3, gs), by names, through pyarrow.fs."""

import contextlib
from pathlib import Path

from gsf.core.errors import UserError
from gsf.core.files import refuse_links, write_atomic


class Storage:
    def __init__(self, uri: str) -> None:
        try:
            from pyarrow import fs
        except ImportError as error:
            raise UserError(
                f"--storage needs pyarrow ({error}): pip install 'gsf-rl[cluster]'."
            ) from None
        self._fs = fs
        try:
            self._files, self._root = fs.FileSystem.from_uri(uri)
            self._files.create_dir(self._root, recursive=True)
            if self._files.type_name == "local":
                refuse_links(Path(self._root))
        except (OSError, ValueError) as error:  # pyarrow's own errors are these
            raise UserError(f"--storage {uri} cannot be used: {error}") from None

    def write(self, name: str, path: Path) -> None:
        """Whole or not at all: an object store makes an object visible when it is complete."""
        place, data = f"{self._root}/{name}", path.read_bytes()
        if self._files.type_name == "local":
            write_atomic(Path(place), data)
            return
        with self._files.open_output_stream(place) as stream:
            stream.write(data)

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._files.delete_file(f"{self._root}/{name}")

    def read(self, name: str) -> bytes | None:
        try:
            with self._files.open_input_stream(f"{self._root}/{name}") as stream:
                data: bytes = stream.read()
                return data
        except FileNotFoundError:
            return None

    def names(self, below: str) -> list[str]:
        """Files at or below a name."""
        place = f"{self._root}/{below}"
        found = self._files.get_file_info([place])
        found += self._files.get_file_info(
            self._fs.FileSelector(place, allow_not_found=True, recursive=True)
        )
        files = (x.path for x in found if x.type == self._fs.FileType.File)
        return [x[len(self._root) + 1 :] for x in files if not x.endswith(".partial")]
