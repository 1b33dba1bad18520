"""Pack vLLM for a Hopper GPU that has torch, transformers and no network: ``make gpu-bundle-vllm``.

Into ``.gpu-vllm``: what ``requirements/gpu-bundle-vllm.txt`` lists, for Python 3.12 on x86-64 Linux, without what Qwen2
on such a GPU does not need, as parts of an archive that are small enough to be taken along one by one. Unpacked and run
there, beside what ``make gpu-bundle`` wrote, by ``make gpu-proof-vllm``.
"""

from __future__ import annotations

import io
import shutil
import struct
import subprocess
import sys
import tarfile
from pathlib import Path

FOLDER = Path(".gpu-vllm")
NAMES = Path("requirements/gpu-bundle-vllm.txt")
UV = Path(sys.executable).with_name("uv")
PART_BYTES = 48 * 1024 * 1024

UNUSED = (
    *("bin", "pycountry/locales", "vllm/vllm-rs", "vllm/benchmarks", "vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so"),
    *("vllm/third_party/deep_gemm", "vllm/third_party/fmha_sm100", "vllm/_qutlass_C.abi3.so"),
    *("vllm/_flashmla_C.abi3.so", "vllm/_flashmla_extension_C.abi3.so"),
)
"""Programs and kernels of other attentions, of other GPUs, and headers: three quarters of vLLM's wheel."""

HOPPER = 90
FAT = struct.Struct("<IHHQ")
FAT_MAGIC = 0xBA55ED50
ENTRY = struct.Struct("<HHIQ12xI")  # kind, version, bytes of this header, bytes of the code, ..., architecture


def main() -> int:
    """Exit status 0 when it is packed."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    site = FOLDER / "site"
    target = ["--python-version", "3.12", "--python-platform", "x86_64-manylinux_2_39", "--target", str(site)]
    subprocess.run([str(UV), "pip", "install", "--quiet", "--no-deps", *target, "-r", str(NAMES)], check=True)
    for name in UNUSED:
        path = site / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    for library in (site / "vllm").rglob("*_C*.so"):
        content = bytearray(library.read_bytes())
        blank_other_gpus(content)
        library.unlink()  # it may be a link to uv's cache
        library.write_bytes(content)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz", preset=4) as archive:
        archive.add(site, "site", filter=lambda member: None if "__pycache__" in member.name else member)
    shutil.rmtree(site)
    for number, first in enumerate(range(0, packed.tell(), PART_BYTES)):
        (FOLDER / f"part-{number}").write_bytes(packed.getbuffer()[first : first + PART_BYTES])
    print(f"{FOLDER}: {packed.tell() / 1e6:.1f} MB. Take it along with .gpu-bundle; there, `make gpu-proof-vllm`.")
    return 0


def blank_other_gpus(library: bytearray) -> None:
    """Zero the code of other architectures, which is never loaded, so that it packs to nothing."""
    magic = struct.pack("<I", FAT_MAGIC)
    found = library.find(magic)
    while found >= 0:
        _, version, header, size = FAT.unpack_from(library, found)
        end = found + header + size
        if version != 1 or header != FAT.size or end > len(library):  # not code, the same four bytes by chance
            found = library.find(magic, found + 1)
            continue
        entry = found + header
        while entry < end:
            _kind, _version, header, size, architecture = ENTRY.unpack_from(library, entry)
            if architecture != HOPPER:
                library[entry + header : entry + header + size] = bytes(size)
            entry += header + size
        found = library.find(magic, end)


if __name__ == "__main__":
    sys.exit(main())
