"""The admin socket: where it lies, who may use it, and what survives the way through it."""

import asyncio
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.engine.admin.client import AdminClient, OwnerUnreachable
from perdure.engine.admin.endpoint import choose_endpoint, find_endpoint, remove_endpoint
from perdure.engine.admin.failures import RemoteRefusal, error_view
from perdure.engine.admin.requests import (
    GetWorkflow,
    ListSignals,
    ListWorkflows,
    SendSignal,
    Stats,
    WakeWorkflow,
)
from perdure.engine.admin.server import AdminServer
from perdure.engine.admin.views import (
    ControlResult,
    PendingSignalView,
    SignalResult,
    StatsView,
    WorkflowPage,
    WorkflowView,
)
from perdure.engine.errors import WorkflowFinished, WorkflowNotFound
from perdure.ids import Id

WORKFLOW = Id.new()
PAGE = WorkflowPage(
    workflows=[
        WorkflowView(
            id=str(WORKFLOW),
            name="fulfil",
            state="sleeping",
            created_at=1,
            changed_at=2,
            tags={"a": "1", "b": 1, "c": True},
        )
    ],
    next_page="token",
)


class Fake:
    """An admin interface that answers from a table and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[object] = []
        self.gate: asyncio.Event | None = None
        self.reached = asyncio.Event()

    async def ask(self, request: Any) -> Any:
        self.asked.append(request)
        match request:
            case ListWorkflows():
                return PAGE
            case ListSignals():
                return [PendingSignalView(id="s", name="paid", sent_at=1, ray_id="r", body=[1.5])]
            case SendSignal():
                return SignalResult(workflow_id=request.id, signal_id="s", woken=True)
            case GetWorkflow():
                raise WorkflowNotFound(Id.parse(request.id))
            case WakeWorkflow():
                assert self.gate is not None
                self.reached.set()
                await self.gate.wait()
                return ControlResult(workflow_id=request.id, action="wake")
            case _:
                raise RuntimeError("a fault of ours")


@pytest.fixture
def fake() -> Fake:
    return Fake()


@pytest.fixture
async def socket(tmp_path: Path, fake: Fake) -> AsyncIterator[Path]:
    server = AdminServer(fake, tmp_path)
    yield await server.start()
    await server.close()


async def test_answers_keep_their_types(socket: Path, fake: Fake) -> None:
    async with await AdminClient.connect(socket) as client:
        page = await client.ask(ListWorkflows(state="sleeping", tags={"b": 1, "c": True}))
        signals = await client.ask(ListSignals(id=str(WORKFLOW)))
        sent = await client.ask(SendSignal(id=str(WORKFLOW), name="paid", body={"by": "ü\n"}))

    assert page == PAGE
    assert signals[0].body == [1.5]
    assert sent.woken
    assert fake.asked == [
        ListWorkflows(state="sleeping", tags={"b": 1, "c": True}),
        ListSignals(id=str(WORKFLOW)),
        SendSignal(id=str(WORKFLOW), name="paid", body={"by": "ü\n"}),
    ]


async def test_errors_are_carried_over_with_code_text_and_fields(socket: Path) -> None:
    async with await AdminClient.connect(socket) as client:
        with pytest.raises(RemoteRefusal) as refused:
            await client.ask(GetWorkflow(id=str(WORKFLOW)))

    view = refused.value.view
    assert view.code == "engine.workflow_not_found"
    assert view.fault == "caller"
    assert view.fields["workflow_id"] == str(WORKFLOW)
    assert str(refused.value) == str(WorkflowNotFound(WORKFLOW))
    assert error_view(refused.value) is view


async def test_the_connection_survives_refusals_and_faults(socket: Path) -> None:
    async with await AdminClient.connect(socket) as client:
        with pytest.raises(RemoteRefusal) as fault:
            await client.ask(Stats())
        assert (await client.ask(ListWorkflows())) == PAGE

    assert fault.value.view.code == "admin.internal"
    assert "a fault of ours" in fault.value.message


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"nonsense", "malformed"),
        (b'{"protocol":1,"request":{"method":"explode"}}', "explode"),
        (b'{"protocol":1,"request":{"method":"get"}}', "id"),
        (b'{"protocol":1,"request":{"method":"stats","more":1}}', "more"),
        (b'{"protocol":99,"request":{"method":"stats"}}', "protocol 99"),
    ],
)
async def test_bad_requests_are_answered(socket: Path, line: bytes, problem: str) -> None:
    reader, writer = await asyncio.open_unix_connection(str(socket))
    writer.write(line + b"\n")
    answer = msgspec.json.decode(await reader.readline())
    writer.close()

    assert answer["error"]["code"] == "admin.bad_request"
    assert problem in answer["error"]["message"]


async def test_many_clients_are_served_at_once(socket: Path, fake: Fake) -> None:
    fake.gate = asyncio.Event()
    async with (
        await AdminClient.connect(socket) as slow,
        await AdminClient.connect(socket) as fast,
    ):
        waiting = asyncio.ensure_future(slow.ask(WakeWorkflow(id=str(WORKFLOW))))
        assert (await fast.ask(ListWorkflows())) == PAGE
        assert not waiting.done()
        fake.gate.set()
        assert (await waiting).action == "wake"


async def test_a_request_under_way_is_finished_before_the_server_closes(
    tmp_path: Path, fake: Fake
) -> None:
    fake.gate = asyncio.Event()
    server = AdminServer(fake, tmp_path)
    client = await AdminClient.connect(await server.start())
    asked = asyncio.ensure_future(client.ask(WakeWorkflow(id=str(WORKFLOW))))
    await fake.reached.wait()
    closing = asyncio.ensure_future(server.close())
    with pytest.raises(OwnerUnreachable):
        await asked
    assert not closing.done()
    fake.gate.set()
    await closing
    await client.close()
    assert find_endpoint(tmp_path) is None


def test_the_socket_is_for_its_owner_only(socket: Path) -> None:
    assert stat.S_IMODE(socket.stat().st_mode) == 0o600


async def test_a_socket_left_by_a_crash_is_replaced(tmp_path: Path, fake: Fake) -> None:
    (tmp_path / "admin.sock").write_text("left over")
    server = AdminServer(fake, tmp_path)
    async with await AdminClient.connect(await server.start()) as client:
        assert (await client.ask(ListWorkflows())) == PAGE
    await server.close()


async def test_a_long_path_is_served_from_a_short_one(tmp_path: Path, fake: Fake) -> None:
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    server = AdminServer(fake, folder)
    socket = await server.start()
    assert socket.parent != folder
    assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700
    assert find_endpoint(folder) == socket
    async with await AdminClient.connect(socket) as client:
        assert (await client.ask(ListWorkflows())) == PAGE
    await server.close()

    assert find_endpoint(folder) is None
    assert not socket.parent.exists()


def test_a_pointer_left_by_a_crash_is_cleaned_up(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    first = choose_endpoint(folder)
    second = choose_endpoint(folder)

    assert first != second
    assert not first.parent.exists()
    remove_endpoint(folder)
    assert not second.parent.exists()


def test_only_our_own_temporary_folders_are_removed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    folder = tmp_path / "store"
    folder.mkdir()
    (folder / "admin.sock.path").write_text(str(precious / "admin.sock"))

    remove_endpoint(folder)

    assert precious.exists()


def test_an_error_as_data_has_plain_fields() -> None:
    view = error_view(WorkflowFinished(WORKFLOW, "dead"))

    assert view.code == "engine.workflow_finished"
    assert view.fields == {"workflow_id": str(WORKFLOW), "phase": "dead"}
    assert msgspec.json.decode(msgspec.json.encode(view), type=type(view)) == view


async def test_stats_survive_the_way_there_and_back() -> None:
    view = StatsView(at=1, workflows={"fulfil": {"dead": 1}}, signals={"paid": 2})
    assert msgspec.json.decode(msgspec.json.encode(view), type=StatsView) == view
