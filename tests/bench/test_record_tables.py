"""Tables that a program prints, as sections of a page."""

from commands import run_python


def record(name, page, program):
    """Run the module in a process of its own."""
    return run_python("-m", "tilesolve.bench.results.record_tables", name, page, program, "7")


def test_tables_become_a_section(tmp_path):
    """What is printed is shown, and on the page it takes the place of what was there before."""
    program, page = tmp_path / "times.py", tmp_path / "page.md"
    program.write_text(
        "import sys\nprint('hello')\nprint('| a | b |\\n| --- | --- |\\n| 1 |', sys.argv[1], '|')"
    )
    for _ in range(2):
        done = record("times", page, program)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == "hello\n| a | b |\n| --- | --- |\n| 1 | 7 |\n"
        text = page.read_text("utf-8")
        assert text.count("## times\n") == 1
        assert "\n\n| a | b |\n| --- | --- |\n| 1 | 7 |\n\n| notes |\n| --- |\n| hello |\n" in text
        assert f"| command | python {program} 7 |" in text
    program.write_text("print('| c |')")
    record("other", page, program)
    assert page.read_text("utf-8").startswith(text)


def test_a_program_that_fails_writes_nothing(tmp_path):
    """Its exit status is this one's, and the page stays as it was."""
    program, page = tmp_path / "times.py", tmp_path / "page.md"
    program.write_text("print('| a |')\nraise SystemExit(3)")
    assert record("times", page, program).returncode == 3
    assert not page.exists()
