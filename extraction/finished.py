"""What became of a page, as its submitter gets it from the ledger."""

from __future__ import annotations

import msgspec

from .ledger import BatchRecord
from .reason import Reason
from .record import PageInput, Result


def record_line(record: BatchRecord) -> bytes:
    """Return the JSON line of a finished page, under the submitter's id; of dead pages too."""
    return batch_result(record).to_json_line()


def batch_result(record: BatchRecord) -> Result:
    """Return the result of a finished page under the submitter's id.

    A dead page has a failed result, whose message tells of its last error.
    """
    if record.result is not None:
        result = Result.from_json_line(record.result)
        return msgspec.structs.replace(result, id=record.client_id, url=record.url)
    reason, message = Reason.RECORD_EXPIRED, "the record is gone"
    if record.error is not None:
        message = record.error.message
        if record.state == "dead":
            reason = Reason.ATTEMPTS_EXHAUSTED
            message = f"given up; the last of its errors is {record.error.reason}: {message}"
    page = PageInput(id=record.client_id, body=b"", url=record.url)
    return Result.failed(page, reason, message, schema=record.schema, model=record.model)
