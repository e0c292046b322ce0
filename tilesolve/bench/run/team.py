"""The processes of contenders: started, asked for runs, and stopped if they hang."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

from tilesolve.bench.contenders import Contender
from tilesolve.bench.procedure import Procedure
from tilesolve.bench.run.turn import Turn
from tilesolve.bench.run.worker import COMMAND, Order, Ready
from tilesolve.contractions.errors import TilesolveError

MESSAGE_CHARACTERS = 200
"""Most characters of a failed process's last line that an error repeats."""

EXIT_SECONDS = 2.0
"""Seconds in which a process has to end after it has closed the connection."""

POLL_SECONDS = 0.5
"""Seconds between two looks at whether a silent process has ended. The connection alone does not
tell: a child of that process may hold it open."""


class PeerError(TilesolveError, RuntimeError):
    """A contender failed; the message says how, in one line."""


class Worker:
    """One process, and the connection to it."""

    def __init__(self, contender: Contender, threads: int, said: IO[bytes]) -> None:
        self.said = said
        self.connection: Connection[Any, Any]
        self.connection, far = Pipe()
        with far:
            self.process = subprocess.Popen(
                [sys.executable, "-c", COMMAND, str(far.fileno()), str(os.getpid())],
                env=contender.build_variables(dict(os.environ), threads),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                pass_fds=[far.fileno()],
                start_new_session=True,
            )

    def send(self, message: object) -> None:
        """Send a message; that nobody reads it any more is found when the answer is awaited."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send(message)

    def answer(self, limit: float, lack: str = "no answer") -> Any:  # noqa: ANN401 - any message
        """Return the next answer; raise a `PeerError` for a failure, an end, or silence."""
        give_up = time.monotonic() + limit
        while not self.connection.poll(max(0.0, min(POLL_SECONDS, give_up - time.monotonic()))):
            if self.process.poll() is not None and not self.connection.poll():
                raise PeerError(self._end())
            if time.monotonic() >= give_up:
                self.stop()
                raise PeerError(f"stopped: {lack} within {limit:g} s")
        try:
            found = self.connection.recv()
        except (EOFError, ConnectionResetError):
            raise PeerError(self._end()) from None
        if isinstance(found, str):
            raise PeerError(" ".join(found.split()))
        return found

    def _end(self) -> str:
        """Say how the process ended, and what it said last; end it if it does not by itself."""
        try:
            how = _describe_end(self.process.wait(EXIT_SECONDS))
        except subprocess.TimeoutExpired:
            self.stop()
            how = "stopped: hung up without ending"
        self.said.seek(0)
        lines = self.said.read().decode(errors="replace").split("\n")
        final = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f"{how} ({final[:MESSAGE_CHARACTERS]})" if final else how

    def stop(self) -> None:
        """End the process, and what it may have started, whatever it is doing."""
        self.connection.close()
        self._signal(signal.SIGKILL)
        self.process.wait()

    def pause(self) -> None:
        """Halt the process: threads that wait for more work in a loop would slow down others."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a process go on that was halted."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


def _describe_end(status: int) -> str:
    if status < 0:
        return f"crashed: {signal.Signals(-status).name}"
    return f"ended with status {status}"


class Team:
    """The processes of one contender: one, or one per core for a batch.

    An answer may take `limit` seconds.
    """

    def __init__(self, workers: Sequence[Worker], limit: float) -> None:
        self.workers, self.limit = list(workers), limit

    def prepare(self, orders: Sequence[Order]) -> Ready:
        """Have each worker make ready, one after the other; return what the first one found.

        Between its turns a worker is halted.
        """
        found: list[Ready] = []
        for worker, order in zip(self.workers, orders, strict=True):
            worker.resume()
            worker.send(order)
            worker.answer(self.limit, "did not compile")
            found.append(worker.answer(self.limit))
            worker.pause()
        for other in found:
            if other.problem:
                raise PeerError(other.problem)
        return found[0]

    def run(self) -> Turn:
        """Return what a run took: the longest, where several run side by side."""
        for worker in self.workers:
            worker.resume()
            worker.send(None)
        turns: list[Turn] = [worker.answer(self.limit) for worker in self.workers]
        for worker in self.workers:
            worker.pause()
        return max(turns, key=lambda turn: turn.seconds)

    def stop(self) -> None:
        """End all processes."""
        for worker in self.workers:
            worker.stop()


@contextmanager
def start_team(contender: Contender, threads: int, batch: int, limit: float) -> Iterator[Team]:
    """Start the processes of a contender; they are gone afterwards, whatever they were doing."""
    with tempfile.TemporaryDirectory(prefix="tilesolve-bench-") as folder:
        said = [(Path(folder) / str(at)).open("w+b") for at in range(batch)]
        started = Team([], limit)
        try:
            for file in said:
                started.workers.append(Worker(contender, threads, file))
            yield started
        finally:
            started.stop()
            for file in said:
                file.close()


class Crew:
    """The processes of all contenders: started when first needed, kept for what follows."""

    def __init__(self, contenders: Sequence[Contender], procedure: Procedure) -> None:
        self.contenders, self.procedure = tuple(contenders), procedure
        self.teams: dict[str, tuple[Team, ExitStack]] = {}

    @property
    def there(self) -> list[Contender]:
        """The contenders that are installed."""
        return [one for one in self.contenders if one.installed]

    def prepare(self, who: Contender, orders: Sequence[Order]) -> tuple[Team, Ready]:
        """Have a contender make ready; raise a `PeerError` if it fails, whose process ends."""
        if who.name not in self.teams:
            stack, made = ExitStack(), self.procedure
            started = start_team(who, made.threads, made.batch, made.limit)
            self.teams[who.name] = stack.enter_context(started), stack
        team, _ = self.teams[who.name]
        try:
            return team, team.prepare(orders)
        except PeerError:
            self.dismiss(who.name)
            raise

    def dismiss(self, name: str) -> None:
        """End a contender's process; another one starts if it is needed again."""
        if name in self.teams:
            _, stack = self.teams.pop(name)
            stack.close()

    def dismiss_all(self) -> None:
        """End all processes."""
        for name in tuple(self.teams):
            self.dismiss(name)


@contextmanager
def keep_crew(contenders: Sequence[Contender], procedure: Procedure) -> Iterator[Crew]:
    """Give a crew; its processes are gone afterwards."""
    crew = Crew(contenders, procedure)
    try:
        yield crew
    finally:
        crew.dismiss_all()
