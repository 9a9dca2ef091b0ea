"""A directory that is there whole or not at all, on any file system Spark knows.

Everything is written under another name beside it, and renamed when it is complete. A job that was killed leaves only
the other name, `….incomplete-…`, which nobody reads and anybody may remove.
"""

from typing import Any
from uuid import uuid4

from pyspark.sql import SparkSession

from topics.spark.archive.table import NO_SPACE
from topics.spark.errors import PipelineError


class DirectoryExists(PipelineError):
    """The directory to write is there already. Nothing is overwritten: name another one, or remove it first."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} exists already; name another directory, or remove it first", path=path)


class NoRoom(PipelineError):
    """The disk is full. What was written is removed again: free some space, or name a directory elsewhere."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path}: no space left; nothing of it is there, free some space and run again", path=path)


class OutputDirectory:
    """In a `with` block: write to `partial`, then `complete()`. If the block ends any other way, nothing is left."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        jvm: Any = spark._jvm
        self._name = path.rstrip("/")
        self._new_path = jvm.org.apache.hadoop.fs.Path
        self._path = self._new_path(self._name)
        self._files = self._path.getFileSystem(spark._jsc.hadoopConfiguration())
        if self._files.exists(self._path):
            raise DirectoryExists(path)
        self.partial = f"{self._name}.incomplete-{uuid4().hex[:8]}"
        self._partial = self._new_path(self.partial)

    def write_text(self, name: str, text: str) -> None:
        """A small file beside what Spark writes; a leading underscore hides it from Spark's readers."""
        stream = self._files.create(self._new_path(f"{self.partial}/{name}"))
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def name_files(self, extension: str) -> None:
        """Gives what Spark wrote short names that keep its order."""
        for status in self._files.listStatus(self._partial):
            name = status.getPath().getName()
            if name.startswith("part-"):
                self._files.rename(status.getPath(), self._new_path(f"{self.partial}/{name[:10]}.{extension}"))

    def complete(self) -> None:
        # If the directory has appeared meanwhile, a rename would move ours into it.
        if self._files.exists(self._path) or not self._files.rename(self._partial, self._path):
            raise DirectoryExists(self._name)

    def __enter__(self) -> "OutputDirectory":
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._files.exists(self._partial):
            self._files.delete(self._partial, True)
        if error is not None and NO_SPACE.search(str(error)):
            raise NoRoom(self._name) from error
