"""`make package` and `make versions`: the package as strangers get it, built into files and installed from them.

python -m tests.packaging                        build; install with a compiler and without one; train
python -m tests.packaging --versions [PYTEST...] run tests with the oldest and the newest of what is supported
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from pprgnn.training.option import tomllib

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
DEPENDENCIES = PROJECT["project"]["dependencies"]
OLDEST = {re.split("[>;]", each)[0]: each.replace(">=", "==") for each in DEPENDENCIES}  # that is claimed to work
LIBRARIES = [module["name"].rpartition(".")[2] for module in PROJECT["tool"]["setuptools"]["ext-modules"]]
TORCH = (ROOT / "constraints.txt").read_text().splitlines()[-1]
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
TEST_NEEDS = ("pytest", "pytest-xdist", "hypothesis", "networkx", "tabulate")
NO_COMPILER = {"CC": "false", "CXX": "false"}  # a command that fails, whatever it is asked
failures: list[str] = []


@contextmanager
def check(what: str) -> Iterator[list[str]]:
    """One line, with what the block adds to the list; a block that raises counts as failed."""
    start = time.monotonic()
    found: list[str] = []
    try:
        yield found
        word = "ok"
    except (AssertionError, subprocess.CalledProcessError) as problem:
        word = "FAILED"
        failures.append(what)
        found += [str(problem), *(getattr(problem, "output", None) or "").splitlines()[-25:]]
    text = "\n       ".join(found) if word == "FAILED" else ", ".join(found)
    print(f"{word:<6} {what}{': ' * bool(text)}{text} ({time.monotonic() - start:.0f} s)", flush=True)


def run(*command: str | Path, cwd: Path, **env: str) -> str:
    """Its output, without anything of the environment that would lead it to this checkout."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PPRGNN"))}
    kept |= {"PPRGNN_CACHE": str(cwd / "cache"), "PIP_DISABLE_PIP_VERSION_CHECK": "1"} | env
    done = subprocess.run(
        command, cwd=cwd, env=kept, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
    )
    return done.stdout


def copy_of_the_source(folder: Path) -> set[str]:
    """What git knows or would add: nothing that an earlier build left behind."""
    listed = run("git", "ls-files", "-coz", "--exclude-standard", cwd=ROOT).split("\0")
    names = {name for name in listed if name and (ROOT / name).is_file()}
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    return names


def environment(folder: Path, python: str = sys.executable) -> Path:
    """The interpreter of a new, empty one."""
    run(python, "-m", "venv", folder, cwd=folder.parent)
    return folder / "bin" / "python"


def build_sdist(folder: Path, source: Path) -> Path:
    run(sys.executable, "-m", "build", "--sdist", "--outdir", folder, source, cwd=folder)
    return next(folder.glob("*.tar.gz"))


# ------------------------------------------------------------------------------------------------- make package
def package(folder: Path) -> None:
    names = copy_of_the_source(folder / "source")
    ours = {name.removeprefix("src/") for name in names if name.startswith("src/")}
    with check("sdist has all that a build needs") as found:
        sdist = build_sdist(folder, folder / "source")
        with tarfile.open(sdist) as archive:
            there = {name.partition("/")[2] for name in archive.getnames()}
        needed = {name for name in names if name.startswith("src/")} | {"pyproject.toml", "README.md", "LICENSE"}
        assert needed <= there, f"missing: {sorted(needed - there)}"
        found.append(f"{len(there)} names")
    variants: dict[str, dict[str, str]] = {"with a compiler": {}, "without a compiler": NO_COMPILER}
    for variant, variables in variants.items():
        place = folder / variant.replace(" ", "-")
        place.mkdir()
        with check(f"wheel from the sdist, {variant}, has every file of the package") as found:
            pip = (sys.executable, "-m", "pip", "wheel", "-q", "--no-deps")
            run(*pip, "-w", place, sdist, cwd=place, **variables)
            wheel = next(place.glob("*.whl"))
            there = set(zipfile.ZipFile(wheel).namelist())
            assert ours <= there, f"missing: {sorted(ours - there)}"
            compiled = {Path(name).name.partition(".")[0] for name in there if name.endswith((".so", ".pyd"))}
            assert compiled == (set() if variables else set(LIBRARIES)), f"compiled libraries: {sorted(compiled)}"
            found.append(f"{len(compiled)} compiled libraries")
        if variant not in " ".join(failures):
            install_and_use(place, wheel, variant, compiled=not variables)


def install_and_use(place: Path, wheel: Path, variant: str, *, compiled: bool) -> None:
    """With what every installation has, and nothing else."""
    with check(f"{wheel.name} installs, {variant}"):
        python = environment(place / "venv")
        run(python, "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", wheel, cwd=place)
        run(python, "-m", "pip", "check", cwd=place)
    command = python.with_name("pprgnn")
    with check(f"import pprgnn, {variant}"):
        code = "import pprgnn, sys; pprgnn.NodeClassifier; print(pprgnn.__file__.startswith(sys.prefix))"
        assert run(python, "-c", code, cwd=place) == "True\n"
    with check(f"pprgnn --help, {variant}"):
        assert "train" in run(command, "--help", cwd=place)
    with check(f"pprgnn doctor says what computes, {variant}") as found:
        said = json.loads(run(command, "doctor", "--json", cwd=place))
        kernel, told = said["environment"]["kernel"], any("not built" in line for line in said["advice"])
        assert said["check"]["ok"], said["check"]
        assert (kernel != "torch", told) == (compiled, not compiled), f"kernel {kernel}, advice {said['advice']}"
        found.append(kernel)
    with check(f"pprgnn train chains, {variant}"):
        run(command, "train", "chains", "-s", "epochs=3", "-s", "options.length=10", "-o", "run", cwd=place)
        run(command, "predict", "run", "-o", "predictions.csv", cwd=place)
        assert (place / "predictions.csv").stat().st_size


# ------------------------------------------------------------------------------------------------ make versions
def versions(folder: Path, pytest_options: list[str]) -> None:
    """The oldest of everything with this Python, the newest with each that is found."""
    copy_of_the_source(folder / "source")
    sdist = build_sdist(folder, folder / "source")
    shutil.rmtree(folder / "source" / "src")  # what is installed is what is tested
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    for name, age in [(here, "oldest"), *((name, "newest") for name in PYTHONS)]:
        python = sys.executable if name == here else f"python{name}"
        try:
            run(python, "--version", cwd=folder)
        except (OSError, subprocess.CalledProcessError):
            print(f"not run: Python {name}: there is no such interpreter here", flush=True)
            continue
        with check(f"Python {name}, {age}") as found:
            found += try_versions(folder, python, f"{name}-{age}", sdist, pytest_options)


def try_versions(folder: Path, python: str, name: str, sdist: Path, pytest_options: list[str]) -> list[str]:
    """What was installed, and how its tests ended."""
    own = environment(folder / name, python)
    oldest = dict(OLDEST) if name.endswith("oldest") else {}
    wanted = [oldest.pop("torch", TORCH), TORCH]
    cpu_builds = (f"{each}+cpu" for each in wanted)  # the other ones bring gigabytes of CUDA
    torch = next((each for each in cpu_builds if can_install(own, each)), None)
    others = [each for each in DEPENDENCIES if not each.startswith("torch")]
    if torch is None:
        run(own, "-m", "pip", "install", "-q", "--no-deps", sdist, cwd=folder)
        run(own, "-m", "pip", "install", "-q", *others, cwd=folder)
        run(own, "-m", "compileall", "-q", "-x", "site-packages/(?!pprgnn)", folder / name / "lib", cwd=folder)
        for words in (["--help"], ["train", "--help"], ["models"], ["data", "list"]):
            run(own.with_name("pprgnn"), *words, cwd=folder)
        return [*installed(own), "no CPU build of torch found: compiled; --help, models and data list only"]
    (folder / f"{name}.txt").write_text("\n".join([torch, *oldest.values()]))
    run(own, "-m", "pip", "install", "-q", "-c", folder / f"{name}.txt", sdist, *TEST_NEEDS, cwd=folder)
    smoke = ("train", "chains", "-s", "epochs=3", "-s", "options.length=10", "-o", folder / f"{name}-run")
    run(own.with_name("pprgnn"), *smoke, cwd=folder)
    tests = ("-m", "pytest", "-q", "-p", "no:cacheprovider", *pytest_options, "tests/core", "tests/nn")
    return [*installed(own), run(own, *tests, cwd=folder / "source").splitlines()[-1]]


def can_install(python: Path, requirement: str) -> bool:
    """Installs it, if there is such a thing."""
    try:
        run(python, "-m", "pip", "install", "-q", requirement, cwd=python.parent)
    except subprocess.CalledProcessError as problem:
        if "No matching distribution" not in problem.output:
            raise
        return False
    return True


def installed(python: Path) -> list[str]:
    """The versions of what is depended on."""
    frozen = run(python, "-m", "pip", "list", "--format=freeze", cwd=python.parent).splitlines()
    return [each.replace("==", " ") for each in frozen if each.partition("==")[0] in OLDEST]


def main() -> None:
    with TemporaryDirectory(prefix="pprgnn-") as folder:
        if sys.argv[1:2] == ["--versions"]:
            versions(Path(folder), sys.argv[2:])
        else:
            package(Path(folder))
    print(f"{len(failures)} failed" if failures else "all passed")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
