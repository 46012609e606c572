# SPDX-License-Identifier: Apache-2.0
"""PEP 517 backend: a wheel of the Python files and the libweightbridge that `make` built.

The library is looked for in $WB_LIB (the file or its folder), $WB_BUILD/lib and build/release/lib.
$WB_WHOLE, a folder: its files are packed too, programs in bin/, licences in licenses/ (charts/release/wheel.sh).
Nothing is compiled, downloaded or left in the tree.
"""
import base64
import hashlib
import os
import platform
import re
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
NAME = "libweightbridge.so.0"
DATE = (2020, 1, 1, 0, 0, 0)  # the same content gives the same wheel


def _library():
    tree = os.path.normpath(os.path.join(HERE, "..", ".."))
    given = os.environ.get("WB_LIB")
    tried = [given, os.path.join(given, NAME)] if given else [
        *([os.path.join(os.environ["WB_BUILD"], "lib", NAME)] if os.environ.get("WB_BUILD")
          else []),
        os.path.join(tree, "build", "release", "lib", NAME)]
    for path in tried:
        if os.path.isfile(path):
            return path
    raise SystemExit(f"{NAME} is not built (looked at {', '.join(tried)}): run `make` first.")


def _version():
    header = os.path.join(HERE, "..", "include", "weightbridge", "version.h")
    with open(header, encoding="utf-8") as f:
        return re.search(r'WB_VERSION "([^"]+)"', f.read()).group(1)


def _metadata():
    return (f"Metadata-Version: 2.1\nName: weightbridge-rl\nVersion: {_version()}\n"
            "Summary: Moves new weights from trainers to inference engines\n"
            "License: Apache-2.0\nRequires-Python: >=3.9\nRequires-Dist: numpy\n"
            "Provides-Extra: torch\nRequires-Dist: torch; extra == \"torch\"\n")


def _tag():
    return f"py3-none-linux_{platform.machine()}"


def _info():
    return f"weightbridge_rl-{_version()}.dist-info"


def _wheel_text():
    return (f"Wheel-Version: 1.0\nGenerator: wheel_backend\nRoot-Is-Purelib: false\n"
            f"Tag: {_tag()}\n")


def _pack(folder, files):
    """files: list of (name in the wheel, bytes)."""
    name = f"weightbridge_rl-{_version()}-{_tag()}.whl"
    record = []
    with zipfile.ZipFile(os.path.join(folder, name), "w", zipfile.ZIP_DEFLATED) as z:
        for path, data in files:
            entry = zipfile.ZipInfo(path, DATE)
            is_program = path.endswith(".so.0") or path.startswith("weightbridge/bin/")
            entry.external_attr = (0o755 if is_program else 0o644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            z.writestr(entry, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{path},sha256={digest},{len(data)}\n")
        record.append(f"{_info()}/RECORD,,\n")
        entry = zipfile.ZipInfo(f"{_info()}/RECORD", DATE)
        entry.external_attr = 0o644 << 16
        z.writestr(entry, "".join(record))
    return name


def _read(path):
    with open(path, "rb") as f:
        return f.read()


def _whole():
    """(name in the wheel, bytes) of what $WB_WHOLE holds, programs by themselves first."""
    folder = os.environ.get("WB_WHOLE")
    if not folder:
        return [], []
    bins = [(f"weightbridge/bin/{n}", _read(os.path.join(folder, "bin", n)))
            for n in sorted(os.listdir(os.path.join(folder, "bin")))]
    licenses = os.path.join(folder, "licenses")
    texts = [(f"{_info()}/licenses/{n}", _read(os.path.join(licenses, n)))
             for n in sorted(os.listdir(licenses))]
    return bins, texts


def _scripts():
    """Each program that is packed is a command, as `weightbridge` is."""
    commands = ["weightbridge = weightbridge.__main__:main"]
    commands += [f"{name} = weightbridge.programs:{name.rpartition('-')[2]}"
                 for name in (path.rpartition("/")[2] for path, _ in _whole()[0])]
    return "[console_scripts]\n" + "".join(f"{c}\n" for c in commands)


def _info_files():
    return [(f"{_info()}/METADATA", _metadata().encode()),
            (f"{_info()}/WHEEL", _wheel_text().encode()),
            (f"{_info()}/entry_points.txt", _scripts().encode())]


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    package = os.path.join(HERE, "weightbridge")
    files = [(os.path.relpath(os.path.join(at, n), HERE), _read(os.path.join(at, n)))
             for at, _, names in sorted(os.walk(package)) for n in sorted(names) if n.endswith((".py", ".pyi"))]
    files.append((f"weightbridge/{NAME}", _read(_library())))
    programs, licenses = _whole()
    return _pack(wheel_directory, files + programs + _info_files() + licenses)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    _library()  # found again at import
    return _pack(wheel_directory, [("weightbridge.pth", HERE.encode() + b"\n"), *_info_files()])


def build_sdist(sdist_directory, config_settings=None):
    raise SystemExit("there is no source distribution: install from the source tree, after `make`")


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    folder = os.path.join(metadata_directory, _info())
    os.makedirs(folder)
    for name, data in _info_files():
        with open(os.path.join(metadata_directory, name), "wb") as f:
            f.write(data)
    return _info()


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel
