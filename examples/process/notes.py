#!/usr/bin/env python3
"""Writes what the task asks for to notes/N.md, as a draft for a person."""

import json
import pathlib
import sys

request = json.loads(sys.stdin.buffer.readline())
task = request["task"]

note = pathlib.Path("notes") / f"{task['issue']}.md"
note.parent.mkdir(exist_ok=True)
note.write_text(f"# {task['title']}\n\n{task['prompt']}", encoding="utf-8")

answer = {
    "schemaVersion": 1,
    "jobKey": request["jobKey"],
    "result": {
        "reply": f"Wrote {note}.",
        "usage": {"modelCalls": 0, "inputTokens": 0, "outputTokens": 0},
    },
}
print(json.dumps(answer))
