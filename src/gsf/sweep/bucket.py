"""--storage: a folder or bucket that holds a copy of the results, at a URI (file, s3, gs)."""

import contextlib
from pathlib import Path

from gsf.core.errors import UserError
from gsf.core.files import refuse_links, write_atomic


class Bucket:
    """Files by their names in --out, through pyarrow.fs."""

    def __init__(self, uri: str) -> None:
        try:
            from pyarrow import fs  # an optional extra
        except ImportError as error:
            raise UserError(
                f"--storage needs pyarrow ({error}): pip install 'gsf-rl[cluster]'."
            ) from None
        try:
            files, root = fs.FileSystem.from_uri(uri)
            files.create_dir(root, recursive=True)
            self._folder = Path(root) if files.type_name == "local" else None
            if self._folder:
                refuse_links(self._folder)
        except (OSError, ValueError) as error:  # pyarrow's own errors are these
            raise UserError(f"--storage {uri} cannot be used: {error}") from None
        self._fs, self._files = fs, fs.SubTreeFileSystem(root, files)

    def send(self, path: Path, name: str) -> None:
        """Whole or not at all: an object store makes an object visible when it is complete."""
        if self._folder:
            write_atomic(self._folder / name, path.read_bytes())
            return
        with self._files.open_output_stream(name) as stream:
            stream.write(path.read_bytes())

    def fetch(self, name: str, path: Path) -> None:
        """Copies a file to `path`; does nothing if there is none of that name."""
        with contextlib.suppress(FileNotFoundError), self._files.open_input_stream(name) as stream:
            write_atomic(path, stream.read())

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._files.delete_file(name)

    def names(self, folder: str) -> list[str]:
        """Of all files in a folder and the folders in it; none if there is no such folder."""
        chosen = self._fs.FileSelector(folder, allow_not_found=True, recursive=True)
        files = (x for x in self._files.get_file_info(chosen) if x.type == self._fs.FileType.File)
        return [x.path for x in files if not x.path.endswith(".partial")]
