"""bench/results/latest.json: a list of answers, each with when, how and on what it was measured."""

import json
import os

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "results", "latest.json")


def read(path=PATH):
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def merge(before, answers, facts):
    """What was known, with everything of the questions that were asked now replaced. facts (date, machine, load) go to
    each new entry: entries of several runs can be told apart."""
    asked = {answer.number for answer in answers}
    entries = [entry for entry in before if entry["number"] not in asked]
    entries += [{**answer.as_json(), **facts} for answer in answers]
    return sorted(entries, key=lambda entry: entry["number"])


def write(entries, path=PATH):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(json.dumps(entry) for entry in entries) + "\n]\n")
    os.replace(path + ".new", path)
