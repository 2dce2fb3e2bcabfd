"""A scripted model on loopback that takes its time, as far as claude, codex and grok ask for it.

It writes one file, looks once, and says it is done; each answer comes after `delay` seconds. How far
a conversation has come is read from the conversation.
"""
import json, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Model:
    def __init__(self, delay):
        self.delay, self.answers = delay, 0
        model = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
                kind, answer = model.answer(self.path, body)
                self.say(200 if answer is not None else 404, kind, answer or b"{}")

            def do_GET(self):
                one = {"id": "scripted-model", "object": "model", "created": 1, "owned_by": "bench"}
                self.say(200, "application/json", json.dumps({"object": "list", "data": [one]}).encode())

            def do_HEAD(self):
                self.say(200, "application/json", b"")

            def say(self, status, kind, body):
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, path, body):
        path = path.split("?")[0]
        if path.startswith("/grok/") and path.endswith("/responses"):
            return "application/json", None  # a session's title, which nobody asked for
        for end, how in (("/messages", messages), ("/chat/completions", chat), ("/responses", responses)):
            if path.endswith(end):
                asks_for_work, answer = how(body)
                if asks_for_work:
                    self.answers += 1
                    time.sleep(self.delay)
                return "text/event-stream" if body.get("stream") else "application/json", answer
        return "application/json", None


def messages(body):
    """Anthropic's."""
    blocks = [b for m in body.get("messages", []) if isinstance(m.get("content"), list) for b in m["content"]]
    at = sum(1 for b in blocks if b.get("type") == "tool_result")
    works = bool(body.get("tools"))
    tool = lambda name, given: {"type": "tool_use", "id": f"toolu_{at}", "name": name, "input": given}
    steps = [tool("Write", {"file_path": "total.txt", "content": "1\n"}),
             tool("Bash", {"command": "git status", "description": "a look"})]
    block = steps[at] if works and at < len(steps) else {"type": "text", "text": "Done."}
    stop = "tool_use" if block["type"] == "tool_use" else "end_turn"
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": body.get("model"), "content": [block],
               "stop_reason": stop, "stop_sequence": None, "usage": {"input_tokens": 10, "output_tokens": 5}}
    if not body.get("stream"):
        return works, json.dumps(message).encode()
    if stop == "tool_use":
        empty, delta = {**block, "input": {}}, {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    else:
        empty, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": block["text"]}
    head = {**message, "content": [], "stop_reason": None}
    return works, events([
        {"type": "message_start", "message": head},
        {"type": "content_block_start", "index": 0, "content_block": empty},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": {"output_tokens": 5}},
        {"type": "message_stop"}])


def responses(body):
    """OpenAI's. Newer models get one tool that runs a script, which calls the others."""
    kinds = [item.get("type", "") for item in body.get("input", []) if isinstance(item, dict)]
    at = sum(1 for kind in kinds if kind.endswith("_call_output"))
    patch = "apply_patch <<'E'\n*** Begin Patch\n*** Add File: total.txt\n+1\n*** End Patch\nE"
    steps = [patch, "git status"]
    if at >= len(steps):
        text = {"type": "output_text", "text": "Done.", "annotations": []}
        item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [text]}
    elif "additional_tools" in kinds:
        script = f"text(await tools.exec_command({json.dumps({'cmd': steps[at]})}));"
        item = {"type": "custom_tool_call", "id": "ctc_1", "call_id": f"call_{at}", "name": "exec",
                "status": "completed", "input": script}
    else:
        item = {"type": "function_call", "id": "fc_1", "call_id": f"call_{at}", "name": "exec_command",
                "status": "completed", "arguments": json.dumps({"cmd": steps[at]})}
    usage = {"input_tokens": 1000, "input_tokens_details": {"cached_tokens": 300}, "output_tokens": 50,
             "output_tokens_details": {"reasoning_tokens": 7}, "total_tokens": 1050}
    done = {"id": f"resp_{at}", "object": "response", "created_at": 1, "model": body.get("model"),
            "status": "completed", "output": [item], "usage": usage}
    head = {**done, "status": "in_progress", "output": []}
    return True, events([
        {"type": "response.created", "response": head},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": done}])


def chat(body):
    """xAI's."""
    at = sum(1 for message in body.get("messages", []) if message.get("role") == "tool")
    steps = [("write", {"file_path": "total.txt", "content": "1\n"}),
             ("run_terminal_command", {"command": "git status", "description": "a look"})]
    if at < len(steps):
        function = {"name": steps[at][0], "arguments": json.dumps(steps[at][1])}
        call = {"index": 0, "id": f"call_{at}", "type": "function", "function": function}
        delta, finish = {"tool_calls": [call]}, "tool_calls"
    else:
        delta, finish = {"content": "Done."}, "stop"
    usage = {"prompt_tokens": 1000, "completion_tokens": 50, "total_tokens": 1050,
             "prompt_tokens_details": {"cached_tokens": 300}}
    piece = lambda choices, **more: {"id": "c1", "created": 1, "model": body.get("model"),
                                     "object": "chat.completion.chunk", "choices": choices, **more}
    choice = lambda delta, finish: [{"index": 0, "delta": delta, "finish_reason": finish}]
    pieces = [piece(choice({"role": "assistant", "content": ""}, None)), piece(choice(delta, None)),
              piece(choice({}, finish)), piece([], usage=usage)]
    return True, "".join(f"data: {json.dumps(p)}\n\n" for p in pieces).encode() + b"data: [DONE]\n\n"


def events(all):
    return "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in all).encode()
