"""What the release build's program is protected by, read from the program itself."""

import platform
import re
import subprocess

import pytest

from tests.support.relay import binary


def readelf(*flags):
    done = subprocess.run(["readelf", "-W", *flags, binary(["release"])], capture_output=True, text=True, check=True)
    return done.stdout


def segments(kind):
    """The access flags, as in "R E", of the program headers of this kind."""
    return [found.strip() for found in re.findall(rf"^ +{kind} +(?:0x[0-9a-f]+ +){{5}}([RWE ]{{3}})", readelf("-l"), re.MULTILINE)]


def test_it_is_loaded_at_a_random_address():
    assert re.search(r"Type: +DYN", readelf("-h"))
    assert re.search(r"FLAGS_1.*\bPIE\b", readelf("-d"))


def test_relocations_are_read_only_before_main():
    assert segments("GNU_RELRO")
    assert re.search(r"FLAGS_1.*\bNOW\b", readelf("-d"))


def test_no_memory_is_writable_and_executable():
    assert segments("GNU_STACK") == ["RW"]
    assert segments("LOAD")
    assert not [flags for flags in segments("LOAD") if "W" in flags and "E" in flags]
    assert "TEXTREL" not in readelf("-d")


def test_libraries_come_from_the_system_only():
    assert not re.search(r"\((RPATH|RUNPATH)\)", readelf("-d"))


def test_overflows_end_it():
    symbols = readelf("--dyn-syms")
    assert "__stack_chk_fail" in symbols
    for checked in ("__snprintf_chk", "__vsnprintf_chk"):
        assert checked in symbols, "_FORTIFY_SOURCE is not in force"
    # Nothing here copies into an array in a way that level 2 must check; the log copies into memory with a size of its own.
    assert "__memcpy_chk" in symbols, "_FORTIFY_SOURCE is not 3"


def instructions():
    return subprocess.run(["objdump", "-d", "--no-show-raw-insn", binary(["release"])],
                          capture_output=True, text=True, check=True).stdout


PAGE = 4096
TAKE, PROBE = r"\tsub +\$0x([0-9a-f]+),%rsp\n", r" +[0-9a-f]+:\tor[lq] +\$0x0,\(%rsp\)\n"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the instructions are x86's")
def test_no_function_takes_more_of_the_stack_than_it_touches_page_by_page():
    """Otherwise one with a large frame steps over the page that guards the stack's end."""
    text = instructions()
    taken = [int(size, 16) for size in re.findall(TAKE, text)]
    assert [size for size in taken if PAGE < size < 1 << 63] == []  # what is more is negative, and given back
    probed = re.findall(TAKE + PROBE, text)
    assert len(probed) == taken.count(PAGE) > 0


def test_every_file_is_compiled_with_what_leaves_no_trace_in_it():
    """Variables that are not initialised are 0. gcc writes down how it was called, with what debuggers need."""
    compiled = re.findall(r"DW_AT_producer +: (?:\(.*?\): )?(.*)", readelf("--debug-dump=info", "--dwarf-depth=1"))
    assert len(compiled) > 100
    if not all(how.startswith("GNU C") for how in compiled):
        pytest.skip("not gcc, and no other compiler says so")
    for flag in ("-ftrivial-auto-var-init=zero", "-fstack-clash-protection", "-fstack-protector-strong", "-fno-strict-overflow",
                 "-fno-strict-aliasing", "-fno-delete-null-pointer-checks"):
        assert [how for how in compiled if flag not in how.split()] == [], flag


def function_starts():
    """The first instruction of main and of every function of ours that others may call."""
    return dict(re.findall(r"^[0-9a-f]+ <(main|sink_\w+|claim_\w+|arena_\w+)>:\n +[0-9a-f]+:\t(\w+)", instructions(), re.MULTILINE))


@pytest.mark.skipif(platform.machine() != "x86_64", reason="x86 only: control-flow enforcement has other names elsewhere")
def test_functions_are_marked_for_indirect_branch_tracking():
    # Not the program's IBT property: Debian's start files do not have it, so no program there does.
    starts = function_starts()
    assert "main" in starts and len(starts) > 10
    assert starts["main"] == "endbr64"
    assert starts["arena_new"] == "endbr64"


FAULT_POINTS = ("PGCOURIER_FAULT", "fault_place", "claim.arrived")


def traces_of_fault_points(program):
    """In its bytes: the variable, the section of the places, the name of one of them."""
    with open(program, "rb") as file:
        text = file.read()
    return [trace for trace in FAULT_POINTS if trace.encode() in text]


def test_no_fault_point_is_in_it():
    assert traces_of_fault_points(binary(["release"])) == []
    assert traces_of_fault_points(binary(["dev"])) == list(FAULT_POINTS), "what was looked for is nowhere"
