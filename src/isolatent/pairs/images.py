"""Images of a user: from arrays, folders and videos, and pairs of them."""

from __future__ import annotations

import copy
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from isolatent.checks import check_integer, check_one_of, check_real
from isolatent.pairs.arrays import ArrayPairs, release_pages
from isolatent.pairs.readers import VIDEO_SUFFIXES
from isolatent.pairs.series import SeriesPairs

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = [
    "IMAGE_SUFFIXES",
    "STORES",
    "ImagePairs",
    "Images",
    "default_size",
    "read_image_pairs",
    "read_images",
]

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm")
STORES = ("auto", "memory", "disk", "stream")
MEMORY = 2**30  # bytes of decoded images that are kept in memory by default
LEAST_FREE = 2**30  # bytes that a store on disk leaves free
MOST_SIDE = 4096  # pixels of a side of an image after resizing
MIN_SIDE = 2
DECODED_AT_A_TIME = 256  # images that are decoded between two reports of progress
LARGEST_PIXEL = {np.dtype(np.uint8): 255.0, np.dtype(np.uint16): 65535.0}

Array: TypeAlias = NDArray[Any]
FilePath: TypeAlias = str | os.PathLike[str]
Report: TypeAlias = Callable[[int, int, float], None]


class Images:
    """Images of one size, with pixels in [0, 1], from an array or a reader of rows.

    Args:
        pixels: Array (N, height, width) or (N, channels, height, width): integers from 0 to the
            largest that their type holds, or numbers in [0, 1]. A memory map stays on disk.
        channels_last: Whether the array is (N, height, width, channels) instead.
        groups: One session id for each image; by default all are one session.
        names: Names of the images, by which tables of pairs refer to them.

    Attributes:
        shape: (N, channels, height, width).
        groups: The session ids, or None.
        names: The names, or None.
        n_read: Number of images read so far.

    Example:
        >>> images = Images(np.full((5, 8, 8, 3), 51, np.uint8), channels_last=True)
        >>> images.shape, images.read([0, 4]).unique().tolist()
        ((5, 3, 8, 8), [0.20000000298023224])
    """

    def __init__(
        self,
        pixels: ArrayLike,
        *,
        channels_last: bool = False,
        groups: ArrayLike | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        array = (
            pixels.detach().cpu().numpy() if isinstance(pixels, Tensor) else np.asanyarray(pixels)
        )
        if array.ndim == 3:
            array = array[..., None] if channels_last else array[:, None]
        if array.ndim != 4 or 0 in array.shape:
            expected = "(N, height, width, channels)" if channels_last else "(N, C, height, width)"
            raise ValueError(
                f"pixels must have shape (N, height, width) or {expected}, got {np.shape(pixels)}"
            )
        if array.dtype.kind not in "fub" or array.dtype.itemsize > (
            8 if array.dtype.kind == "f" else 2
        ):
            raise TypeError(
                f"pixels must be of type bool, uint8, uint16 or floats in [0, 1], got {array.dtype}"
            )
        n, *sizes = array.shape
        if channels_last:
            sizes = [sizes[2], *sizes[:2]]
        if sizes[0] not in (1, 2, 3, 4):
            raise ValueError(
                f"pixels must have 1 to 4 channels, got {sizes[0]} in shape {np.shape(pixels)}; "
                "channels_last=True is for arrays (N, height, width, channels)"
            )
        self._array: Array | None = array
        self._channels_last = channels_last
        if array.dtype.kind == "f" and not isinstance(array, np.memmap):
            _check_range(array, np.arange(n))
        self._load: Callable[[Array], Array] = self._take
        self._set(n, (sizes[0], sizes[1], sizes[2]), groups, names)

    @classmethod
    def from_reader(
        cls,
        load: Callable[[Array], Array],
        shape: tuple[int, int, int, int],
        *,
        groups: ArrayLike | None = None,
        names: Sequence[str] | None = None,
    ) -> Images:
        """Return images that are read when they are asked for.

        Args:
            load: Maps row numbers (K,) to images (K, channels, height, width), uint8 or uint16.
            shape: (N, channels, height, width).
            groups: One session id for each image.
            names: Names of the images.
        """
        images = cls.__new__(cls)
        images._array, images._load = None, load
        images._set(shape[0], shape[1:], groups, names)
        return images

    def _set(
        self,
        n: int,
        sizes: tuple[int, int, int],
        groups: ArrayLike | None,
        names: Sequence[str] | None,
    ) -> None:
        self.shape, self.n_read = (n, *sizes), 0
        self.groups = None if groups is None else np.asarray(groups)
        self.names = None if names is None else [str(name) for name in names]
        for what, value in (("groups", self.groups), ("names", self.names)):
            if value is not None and np.shape(value) != (n,):
                raise ValueError(
                    f"{what} must be one for each of {n} images, got shape {np.shape(value)}"
                )

    def __len__(self) -> int:
        return self.shape[0]

    def read(self, rows: ArrayLike | slice) -> Tensor:
        """Return some images as float32 (K, channels, height, width) in [0, 1]."""
        index = np.arange(len(self))[rows] if isinstance(rows, slice) else np.asarray(rows)
        taken = self._load(index)
        self.n_read += len(taken)
        if taken.dtype.kind == "f":
            _check_range(taken, index)
        return _to_floats(taken)

    def _take(self, rows: Array) -> Array:
        assert self._array is not None
        taken = np.asarray(self._array[rows])
        release_pages(self._array)
        return np.moveaxis(taken, 3, 1) if self._channels_last else taken

    def __repr__(self) -> str:
        n, channels, height, width = self.shape
        return f"Images({n} of {channels} × {height} × {width})"


def _to_floats(pixels: Array) -> Tensor:
    if pixels.dtype == bool:
        pixels = pixels.view(np.uint8)
        return torch.from_numpy(np.ascontiguousarray(pixels)).float()
    if pixels.dtype == np.uint8:
        return torch.from_numpy(np.ascontiguousarray(pixels)).float().div_(255)
    values = pixels.astype(np.float32)
    return torch.from_numpy(np.ascontiguousarray(values)).div_(LARGEST_PIXEL.get(pixels.dtype, 1.0))


def _check_range(pixels: Array, rows: Array) -> None:
    valid = ((pixels >= 0) & (pixels <= 1)).reshape(len(pixels), -1).all(axis=1)
    if not valid.all():
        row = int(np.flatnonzero(~valid)[0])
        raise ValueError(
            f"pixels must be finite numbers in [0, 1] or integers, but image {rows[row]} has some "
            f"from {pixels[row].min():g} to {pixels[row].max():g}"
        )


class ImagePairs:
    """Pairs of images by their row numbers: a finite pair source.

    Images are read when a batch asks for them, so that memory holds one batch besides what
    :class:`Images` keeps.

    Args:
        images: The images.
        rows: A finite source of pairs of row numbers, (K, 1) each, such as an
            :class:`~isolatent.pairs.ArrayPairs`. :meth:`from_sequences` and :meth:`from_rows`
            make one.

    Example:
        >>> images = Images(np.zeros((9, 8, 8), np.uint8), groups=[0] * 5 + [1] * 4)
        >>> pairs = ImagePairs.from_sequences(images, lag=2)
        >>> len(pairs), pairs.sample(3, torch.Generator().manual_seed(0))[1].shape
        (7, torch.Size([3, 1, 8, 8]))
    """

    def __init__(self, images: Images, rows: ArrayPairs | SeriesPairs) -> None:
        if not isinstance(images, Images):
            raise TypeError(f"images must be Images, got {type(images).__name__}")
        self.images, self.rows = images, rows

    @classmethod
    def from_sequences(cls, images: Images, lag: int | Sequence[int] = 1) -> ImagePairs:
        """Return pairs of images of a sequence, the positive a little later than its anchor.

        Args:
            images: The images, whose sequences are their groups.
            lag: The longest lag in images, or the shortest and the longest.
        """
        return cls(images, SeriesPairs(_column(np.arange(len(images))), lag, images.groups))

    @classmethod
    def from_rows(cls, images: Images, anchors: ArrayLike, positives: ArrayLike) -> ImagePairs:
        """Return pairs from a table of row numbers.

        Args:
            images: The images.
            anchors: Row number of each anchor, (K,).
            positives: Row number of its positive.
        """
        columns = []
        for name, value in (("anchors", anchors), ("positives", positives)):
            rows = np.asarray(value)
            if rows.ndim != 1 or rows.dtype.kind not in "iu":
                raise ValueError(
                    f"{name} must be integers (K,), got {rows.dtype} of shape {rows.shape}"
                )
            if len(rows) and not 0 <= rows.min() <= rows.max() < len(images):
                raise ValueError(
                    f"{name} must be rows from 0 to {len(images) - 1}, got {rows.min()} to "
                    f"{rows.max()}"
                )
            columns.append(_column(rows))
        return cls(images, ArrayPairs(*columns))

    @property
    def ordered(self) -> bool:
        """Whether every positive follows its anchor by one and the same lag."""
        return bool(self.rows.ordered)

    def __len__(self) -> int:
        return len(self.rows)

    def sample(self, batch_size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw ``batch_size`` pairs."""
        return self._read(self.rows.sample(batch_size, generator))

    def split(self, share: float, generator: torch.Generator) -> tuple[ImagePairs, ImagePairs]:
        """Split the pairs as the source of row numbers does."""
        parts = []
        for rows in self.rows.split(share, generator):
            part = copy.copy(self)
            part.rows = rows
            parts.append(part)
        return parts[0], parts[1]

    def all(self, positions: Array | None = None) -> tuple[Tensor, Tensor]:
        """Return every pair once, in order; or the pairs at the given positions."""
        return self._read(self.rows.all(positions))

    def _read(self, rows: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        first, second = (part[:, 0].long().numpy() for part in rows)
        return self.images.read(first), self.images.read(second)

    def __repr__(self) -> str:
        return f"ImagePairs({len(self)} pairs of {self.images!r})"


def _column(rows: Array) -> Array:
    """Return row numbers as a column; float64 holds them exactly."""
    return np.asarray(rows, dtype=np.float64)[:, None]


def read_images(
    path: FilePath,
    *,
    size: int | tuple[int, int] | None = None,
    grayscale: bool | None = None,
    store: str = "auto",
    memory: float = MEMORY,
    report: Report = lambda done, total, per_second: None,
) -> Images:
    """Read images from a folder, or the frames of a video.

    All files are found and their headers read before any is decoded, and unless images are streamed
    all are decoded once, so that a broken file is named before training starts. Files are decoded
    by several threads.

    Args:
        path: A folder of images or of videos, or a video. Files are taken in the natural order of
            their names (``frame2`` before ``frame10``), subfolders included. The images of one
            folder are a session, and so are the frames of one video. Hidden files are skipped.
        size: Height and width to which images are resized, or one number for both; by default
            images keep their size and must all have the same.
        grayscale: Whether to convert colours to luma; by default if no image is coloured.
        store: Where decoded images are kept: ``"memory"``; ``"disk"``, a temporary file that is
            read row by row; ``"stream"``, nowhere, so that every image is decoded whenever a batch
            asks for it (not for videos); ``"auto"`` for memory if they fit into ``memory``, else
            disk if it has the space, else a stream.
        memory: Bytes of decoded images that ``"auto"`` keeps in memory.
        report: Called with the number of images done, of all (0 if unknown), and images a second.

    Example:
        >>> from PIL import Image
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for k in range(3):
        ...         Image.new("RGB", (40, 30), (80 * k, 0, 0)).save(Path(folder, f"frame{k}.png"))
        ...     images = read_images(folder, size=16)
        >>> images.shape, images.names
        ((3, 3, 16, 16), ['frame0.png', 'frame1.png', 'frame2.png'])
    """
    check_one_of("store", store, STORES)
    check_real("memory", memory, at_least=0)
    target = _check_size(size)
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: does not exist")
    files = _find_files(path)
    if files[0].suffix.lower() in VIDEO_SUFFIXES:
        if store == "stream":
            raise ValueError(
                "store must be 'auto', 'memory' or 'disk' for videos, whose frames cannot be "
                "decoded one by one, got 'stream'"
            )
        return _read_videos(path, files, target, grayscale, store, memory, report)
    return _read_folder(path, files, target, grayscale, store, memory, report)


def default_size(path: FilePath, most: int) -> tuple[int, int] | None:
    """Return ``(most, most)`` if the first image or video of a folder is larger, else None.

    Args:
        path: A folder, or a video.
        most: Largest height and width.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: does not exist")
    file = _find_files(path)[0]
    name = file.name if file == path else file.relative_to(path).as_posix()
    if file.suffix.lower() in VIDEO_SUFFIXES:
        _require("av", "av")
        frames = _frames(file, name, None, grayscale=True)
        first = next(frames, None)
        frames.close()
        sides = (most + 1, 0) if first is None else first.shape[1:]
    else:
        _require("PIL", "pillow")
        sides = _read_header(file, name)[0]
    return (most, most) if max(sides) > most else None


def read_image_pairs(images: Images, path: FilePath) -> ImagePairs:
    r"""Return pairs from a table of names: a .csv with a header line, or .parquet.

    Args:
        images: The images.
        path: A table with the columns ``anchor`` and ``positive``, which hold names of images: of
            files, relative to the folder that was read, or row numbers for images without names.

    Example:
        >>> images = Images(np.zeros((3, 8, 8), np.uint8), names=["a.png", "b.png", "c.png"])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     table = Path(folder, "pairs.csv")
        ...     _ = table.write_text("anchor,positive\na.png,b.png\nb.png,c.png\n")
        ...     read_image_pairs(images, table)
        ImagePairs(2 pairs of Images(3 of 1 × 8 × 8))
    """
    path = Path(path)
    columns = _read_names(path)
    known = [*map(str, range(len(images)))] if images.names is None else images.names
    row_of = {name: row for row, name in enumerate(known)}
    rows = []
    for column, names in columns.items():
        for line, name in enumerate(names):
            if name not in row_of:
                raise ValueError(
                    f"{path.name}: row {line} has {column} {name!r}, which is none of the "
                    f"{len(row_of)} images, such as {known[0]!r}"
                )
        rows.append(np.array([row_of[name] for name in names], dtype=np.int64))
    if len(rows[0]) < 2:
        raise ValueError(f"{path.name}: must hold at least 2 pairs, got {len(rows[0])}")
    return ImagePairs.from_rows(images, rows[0], rows[1])


def _read_names(path: Path) -> dict[str, list[str]]:
    """Return the columns ``anchor`` and ``positive`` of a table, as text."""
    import pyarrow
    from pyarrow import csv, parquet

    wanted = ("anchor", "positive")
    suffix = path.suffix.lower()
    if suffix not in (".csv", ".parquet"):
        raise ValueError(f"{path}: must end in .csv or .parquet, got {suffix!r}")
    if not path.is_file():
        raise FileNotFoundError(f"{path}: does not exist")
    try:
        if suffix == ".csv":
            types = {name: pyarrow.string() for name in wanted}
            table = csv.read_csv(path, convert_options=csv.ConvertOptions(column_types=types))
        else:
            table = parquet.read_table(path)
    except pyarrow.ArrowInvalid as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"{path.name}: not a valid {suffix} file ({reason})") from error
    missing = [name for name in wanted if name not in table.column_names]
    if missing:
        found = ", ".join(map(repr, table.column_names))
        raise ValueError(f"{path.name}: must have the columns 'anchor' and 'positive', got {found}")
    return {name: [str(value) for value in table[name].to_pylist()] for name in wanted}


# Folders


def _find_files(path: Path) -> list[Path]:
    """Return the images or the videos of a folder, in natural order; a video as it is."""
    if path.is_file():
        if path.suffix.lower() not in VIDEO_SUFFIXES:
            raise ValueError(
                f"{path}: must be a folder of images or a video ({', '.join(VIDEO_SUFFIXES)}), "
                f"got a file {path.suffix!r}"
            )
        return [path]
    found = [
        file
        for file in path.rglob("*")
        if file.is_file() and not any(p.startswith(".") for p in file.relative_to(path).parts)
    ]
    files = sorted(found, key=lambda file: _natural_order(file.relative_to(path)))
    suffixes = {file: file.suffix.lower() for file in files}
    for file, suffix in suffixes.items():
        if suffix not in (*IMAGE_SUFFIXES, *VIDEO_SUFFIXES):
            raise ValueError(
                f"{file.relative_to(path)}: is neither an image nor a video; move it out of {path}"
            )
    videos = [file for file in files if suffixes[file] in VIDEO_SUFFIXES]
    if videos and len(videos) < len(files):
        other = next(file for file in files if file not in videos)
        raise ValueError(
            f"{path}: must hold images or videos, got both, such as "
            f"{other.relative_to(path)} and {videos[0].relative_to(path)}"
        )
    if len(files) < (1 if videos else 2):
        raise ValueError(
            f"{path}: must hold at least two images or a video, got {len(files)} files"
        )
    return files


def _natural_order(path: Path) -> list[Any]:
    """Return a key by which numbers in names are ordered as numbers, a folder as a whole."""
    return [
        [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
        for name in path.parts
    ]


def _check_size(size: Any) -> tuple[int, int] | None:
    """Return (height, width)."""
    if size is None:
        return None
    sides = (size, size) if not isinstance(size, tuple | list) else tuple(size)
    if len(sides) != 2:
        raise ValueError(f"size must be one number, or height and width, got {size!r}")
    height, width = (
        check_integer("size", side, at_least=MIN_SIDE, at_most=MOST_SIDE) for side in sides
    )
    return height, width


def _read_folder(
    path: Path,
    files: list[Path],
    size: tuple[int, int] | None,
    grayscale: bool | None,
    store: str,
    memory: float,
    report: Report,
) -> Images:
    _require("PIL", "pillow")
    names = [file.relative_to(path).as_posix() for file in files]
    with ThreadPoolExecutor(_cores()) as pool:
        headers = list(pool.map(_read_header, files, names))
    if size is None:
        for name, (found, _) in zip(names, headers, strict=True):
            if found != headers[0][0]:
                (h, w), (h0, w0) = found, headers[0][0]
                raise ValueError(
                    f"{name}: is {h} × {w} pixels, but {names[0]} is {h0} × {w0}; give the size "
                    "to which all are resized"
                )
        size = headers[0][0]
    _check_size(size)
    modes = {mode for _, mode in headers}
    deep = any(mode.startswith("I") for mode in modes)
    if any(mode == "F" for mode in modes):
        name = next(n for n, (_, mode) in zip(names, headers, strict=True) if mode == "F")
        raise ValueError(
            f"{name}: has pixels of floating point, whose range is unknown; convert it to 8 or 16 "
            "bits"
        )
    if grayscale is None:
        grayscale = modes <= {"1", "L", "LA", "La"} or deep
    if deep and not (grayscale and all(m.startswith(("I", "L", "1")) for m in modes)):
        raise ValueError(f"{path}: must not hold coloured images beside 16-bit ones")
    dtype = np.dtype(np.uint16 if deep else np.uint8)
    shape = (len(files), 1 if grayscale else 3, *size)

    def load(rows: Array) -> Array:
        chosen = rows.tolist()
        with ThreadPoolExecutor(_cores()) as pool:
            decoded = pool.map(
                lambda row: _decode(files[row], names[row], shape[1:], dtype), chosen
            )
            return np.stack(list(decoded))

    folders = [file.parent for file in files]
    number = {folder: k for k, folder in enumerate(dict.fromkeys(folders))}
    groups = np.array([number[folder] for folder in folders])
    options: dict[str, Any] = {"groups": groups, "names": names}
    place = _place(store, shape, dtype, memory)
    if place == "stream":
        return Images.from_reader(load, shape, **options)
    with _writer(place) as spool:
        clock = _Clock(len(files), report)
        for first in range(0, len(files), DECODED_AT_A_TIME):
            part = np.arange(first, min(first + DECODED_AT_A_TIME, len(files)))
            spool.write(load(part))
            clock.advance(len(part))
        pixels = spool.finish(shape, dtype)
    return Images(pixels, **options)


def _read_header(file: Path, name: str) -> tuple[tuple[int, int], str]:
    """Return height, width and mode of an image, without decoding it."""
    with _open(file, name) as image:
        width, height = image.size
        if image.mode == "P":  # colours of a palette
            return (height, width), "RGB"
        if getattr(image, "n_frames", 1) > 1:
            raise ValueError(
                f"{name}: holds {image.n_frames} images; save each as a file, or all as a video"  # type: ignore[attr-defined]
            )
        return (height, width), image.mode


@contextmanager
def _open(file: Path, name: str) -> Iterator[Image]:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(file) as image:
            yield image
    except UnidentifiedImageError as error:
        raise ValueError(f"{name}: is not a valid image") from error
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"{name}: cannot be decoded ({error})") from error


def _decode(file: Path, name: str, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """Return an image as an array (channels, height, width)."""
    from PIL.Image import Resampling

    channels, height, width = shape
    mode = "RGB" if channels == 3 else "L"
    with _open(file, name) as image:
        if dtype == np.uint8:
            image.draft(mode, (2 * width, 2 * height))  # JPEG decodes at a fraction of the size
            picture: Any = image if image.mode == mode else image.convert(mode)
        else:
            picture = image.convert("I") if image.mode != "F" else image
        if picture.size != (width, height):
            if dtype != np.uint8:
                picture = picture.convert("F")
            picture = picture.resize((width, height), Resampling.BOX)
        pixels = np.asarray(picture)
        if dtype != np.uint8:
            scale = 257 if image.mode in ("L", "1") else 1  # 8-bit images beside those of 16
            pixels = np.clip(np.rint(pixels * float(scale)), 0, 65535)
    pixels = np.moveaxis(np.atleast_3d(pixels), 2, 0)
    return np.ascontiguousarray(pixels, dtype=dtype)


# Videos


def _read_videos(
    path: Path,
    files: list[Path],
    size: tuple[int, int] | None,
    grayscale: bool | None,
    store: str,
    memory: float,
    report: Report,
) -> Images:
    _require("av", "av")
    names: list[str] = []
    groups: list[int] = []
    gray = bool(grayscale)
    shape: tuple[int, int, int] | None = None
    # The number of frames is known after decoding, so frames are written as they come.
    with _writer("disk" if store != "memory" else "memory") as spool:
        clock = _Clock(0, report)
        for number, file in enumerate(files):
            name = file.name if file == path else file.relative_to(path).as_posix()
            count = 0
            for frame in _frames(file, name, size, gray):
                if shape is None:
                    shape = (frame.shape[0], frame.shape[1], frame.shape[2])
                elif frame.shape != shape:
                    raise ValueError(
                        f"{name}: has frames of {frame.shape[1]} × {frame.shape[2]} pixels, but "
                        f"{files[0].name} of {shape[1]} × {shape[2]}; give the size to which all "
                        "are resized"
                    )
                spool.write(frame)
                names.append(f"{name}:{count}")
                groups.append(number)
                count += 1
                clock.advance(1)
            if count == 0:
                raise ValueError(f"{name}: has no frames that can be decoded")
        assert shape is not None
        if len(names) < 2:
            raise ValueError(f"{path}: must hold at least two frames, got {len(names)}")
        whole = (len(names), *shape)
        fits = store != "disk" and int(np.prod(whole)) <= memory
        pixels = spool.finish(whole, np.dtype(np.uint8), in_memory=fits)
    return Images(pixels, groups=groups, names=names)


def _frames(
    file: Path, name: str, size: tuple[int, int] | None, grayscale: bool
) -> Generator[Array, None, None]:
    """Yield the frames of a video as arrays (channels, height, width)."""
    import av

    mode = "gray" if grayscale else "rgb24"
    options: dict[str, Any] = {} if size is None else {"height": size[0], "width": size[1]}
    try:
        with av.open(str(file)) as container:
            if not container.streams.video:
                raise ValueError(f"{name}: has no video stream")
            stream = container.streams.video[0]
            stream.thread_type = "AUTO"
            for frame in container.decode(stream):
                pixels = frame.reformat(format=mode, interpolation="AREA", **options).to_ndarray()
                yield np.ascontiguousarray(np.moveaxis(np.atleast_3d(pixels), 2, 0))
    except (OSError, av.error.FFmpegError) as error:
        raise ValueError(f"{name}: cannot be decoded ({error})") from error


# Stores of decoded images


class _Spool:
    """Decoded images that are written one after the other, to memory or to a temporary file."""

    def __init__(self, file: IO[bytes] | None) -> None:
        self._file = file
        self._parts: list[Array] = []

    def write(self, pixels: Array) -> None:
        if self._file is None:
            self._parts.append(pixels)
        else:
            self._file.write(pixels.tobytes())

    def finish(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], in_memory: bool = False
    ) -> Array:
        """Return all that was written, as an array or as a read-only memory map."""
        if self._file is None:
            whole = np.empty(shape, dtype)
            first = 0
            for part in self._parts:
                rows = part.reshape(-1, *shape[1:])
                whole[first : first + len(rows)] = rows
                first += len(rows)
            return whole
        self._file.flush()
        mapped = np.memmap(self._file, dtype, "r", shape=shape)
        return np.array(mapped) if in_memory else mapped


@contextmanager
def _writer(place: str) -> Iterator[_Spool]:
    """Yield a spool in memory or in a file, which is gone with the last map of it."""
    if place == "memory":
        yield _Spool(None)
        return
    with tempfile.TemporaryFile() as file:
        yield _Spool(file)


def _place(store: str, shape: tuple[int, ...], dtype: np.dtype[Any], memory: float) -> str:
    """Return where to keep decoded images."""
    size = int(np.prod(shape)) * dtype.itemsize
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if store == "disk" and size + LEAST_FREE > free:
        raise OSError(
            f"store must be 'stream' or size smaller: decoded images take {size / 1e9:.1f} GB, but "
            f"{tempfile.gettempdir()} has {free / 1e9:.1f} GB left"
        )
    if store != "auto":
        return store
    if size <= memory:
        return "memory"
    return "disk" if size + LEAST_FREE <= free else "stream"


class _Clock:
    """Reports progress in images a second."""

    def __init__(self, total: int, report: Report) -> None:
        self._total, self._report = total, report
        self._started, self._done = time.monotonic(), 0

    def advance(self, count: int) -> None:
        self._done += count
        if self._done % DECODED_AT_A_TIME < count or self._done == self._total:
            passed = max(time.monotonic() - self._started, 1e-9)
            self._report(self._done, self._total, self._done / passed)


def _cores() -> int:
    return os.cpu_count() or 1


def _require(module: str, package: str) -> None:
    """Raise ImportError if a package of the extra ``images`` is missing."""
    from importlib.util import find_spec

    if find_spec(module) is None:
        raise ImportError(f"reading these images needs {package}: pip install 'isolatent[images]'")
