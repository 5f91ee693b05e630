"""How a process of Ray died, as the text of Ray's error tells it."""

from __future__ import annotations

import re


def death_in_words(text: str) -> tuple[str, str]:
    """Return how a process died, and its number where that is all that Ray knows; both empty if none died."""
    facts = dict(re.findall(r"^\s*(pid|ip): (\S+)$", text, re.MULTILINE))
    where = f" (process {facts['pid']} on {facts['ip']})" if len(facts) == 2 else ""
    if memory := re.search(r"Memory on the node .*", text):  # by Ray's own watch over the memory of machines
        return f"Ray ended its process{where}, out of memory: {memory[0]}", ""
    if "its node has died" in text:
        return f"its machine was lost{where}", ""
    if "creation task" not in text and ("actor died" in text or "actor is dead" in text):
        return f"its process died{where}", facts.get("pid", "")
    return "", ""
