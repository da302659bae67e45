#!/usr/bin/env python3
"""An independent reader of TensorBoard event files, from the published formats: TFRecord framing with masked CRC-32C, the
protobuf wire format, and the field numbers of event.proto and summary.proto.

Usage: event_files.py FOLDER METRICS_JSONL. Fails unless the files of the folder, read in the order of their names and
with what a later session takes back left out, hold the steps and numbers of metrics.jsonl, each step once.
"""
import json
import pathlib
import struct
import sys

CRC_TABLE = []
for byte in range(256):
    for _ in range(8):
        byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
    CRC_TABLE.append(byte)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def records_of(path):
    data = path.read_bytes()
    at = 0
    while at < len(data):
        header, (length, header_crc) = data[at:at + 8], struct.unpack_from("<QI", data, at)
        assert masked(header) == header_crc, f"{path}: the length at {at} is damaged"
        payload = data[at + 12:at + 12 + length]
        (payload_crc,) = struct.unpack_from("<I", data, at + 12 + length)
        assert masked(payload) == payload_crc, f"{path}: the record at {at} is damaged"
        yield payload
        at += 16 + length


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def fields_of(data):
    """(number, value) of a message: ints, raw bytes of fixed fields, and bytes."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
            value, at = data[at:at + size], at + size
        elif kind == 2:
            size, at = varint(data, at)
            value, at = data[at:at + size], at + size
        else:
            raise AssertionError(f"wire type {kind}")
        yield number, value
    assert at == len(data), "a field ends outside of its message"


def event_of(data):
    event = {"step": 0, "values": {}}
    for number, value in fields_of(data):
        if number == 1:
            (event["wall_time"],) = struct.unpack("<d", value)
        elif number == 2:
            event["step"] = value
        elif number == 3:
            event["file_version"] = value.decode()
        elif number == 5:
            for _, scalar in fields_of(value):
                parts = dict(fields_of(scalar))
                (event["values"][parts[1].decode()],) = struct.unpack("<f", parts[2])
        elif number == 7:
            event["session_start"] = dict(fields_of(value)).get(1) == 1
        else:
            raise AssertionError(f"field {number} of an event")
    return event


def events_in(folder):
    """Of all files, in the order in which TensorBoard reads them, without what a session's start takes back."""
    events = []
    for path in sorted(folder.iterdir(), key=lambda p: p.name):
        assert "tfevents" in path.name, path
        for i, data in enumerate(records_of(path)):
            event = event_of(data)
            assert event["wall_time"] > 1.6e9, "the clock"
            if i == 0:
                assert event["file_version"] == "brain.Event:2", path
            elif event.get("session_start"):
                events = [e for e in events if e["step"] < event["step"]]
            else:
                events.append(event)
    return events


def float32(number):
    return struct.unpack("<f", struct.pack("<f", number))[0]


def expected_of(record):
    values = {"train/loss": record["loss"], "train/grad_norm": record["grad_norm"],
              "train/learning_rate": record["learning_rate"], "speed/step_seconds": record["step_seconds"],
              "speed/tokens_per_second": record["tokens_per_second"], "speed/stall_seconds": record["stall_seconds"],
              "disk/read_bytes": record["disk_read_bytes"], "disk/write_bytes": record["disk_write_bytes"],
              "memory/rss_bytes": record["rss_bytes"]}
    if "eval_loss" in record:
        values["eval/loss"] = record["eval_loss"]
    for group, unit in (("phase", "seconds"), ("wait", "seconds"), ("memory", "bytes")):
        for name, value in record.get(f"{group}_{unit}", {}).items():
            values[f"{group}/{name}_{unit}"] = value
    return values


def main():
    folder, metrics = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    assert crc32c(b"123456789") == 0xE3069283
    records = [json.loads(line) for line in metrics.read_text().splitlines()]
    events = events_in(folder)
    steps = [event["step"] for event in events]
    assert records and steps == [record["step"] for record in records], f"steps {steps}"
    for event, record in zip(events, records):
        for tag, value in expected_of(record).items():
            assert event["values"].get(tag) == float32(value), f"step {record['step']}: {tag} is {event['values'].get(tag)}"
    print(f"{len(list(folder.iterdir()))} files, {len(events)} steps, {len(events[0]['values'])} tags")


if __name__ == "__main__":
    main()
