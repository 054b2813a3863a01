"""What the log of writes says under open, committed and aborted transactions."""

from mm2py.backfill.frames.write_log import _LogView, log_key, log_partition, log_record
from mm2py.records.batch import CONTROL, TRANSACTIONAL, NewRecord, build_batch, stamp


class Log:
    """Batches of one partition as a broker would have them."""

    def __init__(self) -> None:
        self.view = _LogView()
        self._offset = 0

    def append(self, record: NewRecord, producer_id: int, *, is_marker: bool = False) -> None:
        batch = build_batch([record])
        stamp(batch, producer_id, 0, 0, transactional=True)
        if is_marker:
            batch[22] |= CONTROL | TRANSACTIONAL
            _checksum(batch)
        batch[:8] = self._offset.to_bytes(8, "big")
        self._offset += 1
        self.view.take(memoryview(batch))

    def writes(self, task: int, batch: int, producer_id: int) -> None:
        self.append(log_record("j", task, batch, records=1, now_ms=0), producer_id)

    def ends(self, producer_id: int, *, committed: bool) -> None:
        self.append(NewRecord(bytes([0, 0, 0, int(committed)]), b"\0" * 6, 0), producer_id, is_marker=True)

    def committed(self, task: int) -> int:
        return self.view.committed.get(log_key("j", task), -1)


def _checksum(batch: bytearray) -> None:
    from crc32c import crc32c

    batch[17:21] = crc32c(memoryview(batch)[21:]).to_bytes(4, "big")


def test_an_open_transaction_of_another_task_hides_nothing() -> None:
    log = Log()
    log.writes(1, 7, producer_id=10)
    log.writes(2, 7, producer_id=20)
    log.ends(20, committed=True)
    assert (log.committed(1), log.committed(2)) == (-1, 7)
    assert log.view.is_pending(log_key("j", 1))
    assert not log.view.is_pending(log_key("j", 2))


def test_an_aborted_attempt_counts_for_nothing() -> None:
    log = Log()
    log.writes(1, 7, producer_id=10)
    log.ends(10, committed=False)
    assert (log.committed(1), log.view.is_pending(log_key("j", 1))) == (-1, False)
    log.writes(1, 7, producer_id=10)
    log.ends(10, committed=True)
    assert log.committed(1) == 7


def test_the_newest_batch_counts() -> None:
    log = Log()
    for batch in (3, 4):
        log.writes(1, batch, producer_id=10)
        log.ends(10, committed=True)
    assert log.committed(1) == 4


def test_a_task_has_one_partition_of_the_log() -> None:
    assert {log_partition("j", task, 10) for task in range(100)} == set(range(10))
    assert log_partition("j", 5, 10) == log_partition("j", 5, 10)
