"""A LangGraph graph whose nodes skip what they have done before. Its contract: README.md beside this file."""

import csv
import functools
import sys
from typing import TypedDict

from langgraph.graph import END, START, StateGraph

import kfm.integrations.langgraph

node = functools.partial(kfm.integrations.langgraph.node, pipeline="survey")


class Survey(TypedDict, total=False):
    county: str
    samples: list[float]
    verdict: str
    advice: str


@node("survey.samples", reads=["county"], inputs=["samples.csv"])
def samples(state: Survey) -> Survey:
    print("reading", file=sys.stderr)
    with open("samples.csv", newline="") as file:
        found = [float(row["ph"]) for row in csv.DictReader(file) if row["county"] == state["county"]]
    return {"samples": found}


@node("survey.judge", reads=["samples"])
def judge(state: Survey) -> Survey:
    print("judging", file=sys.stderr)
    mean = sum(state["samples"]) / len(state["samples"])
    return {"verdict": "acid" if mean < 7 else "alkaline"}


@node("survey.advise", reads=["county", "verdict"])
async def advise(state: Survey) -> Survey:
    print("advising", file=sys.stderr)  # here a model would be asked, once for each county and verdict
    return {"advice": f"{state['county']}: lime is {'worth it' if state['verdict'] == 'acid' else 'wasted'}"}


def made():
    graph = StateGraph(Survey)
    graph.add_node("samples", samples)
    graph.add_node("judge", judge)
    graph.add_node("advise", advise)
    graph.add_edge(START, "samples")
    graph.add_conditional_edges("samples", lambda state: "judge" if state["samples"] else END)
    graph.add_edge("judge", "advise")
    graph.add_edge("advise", END)
    return graph.compile()


if __name__ == "__main__":
    import asyncio

    for county in sys.argv[1:] or ["Riley"]:
        thread = {"configurable": {"thread_id": f"survey-{county}"}}
        print(asyncio.run(made().ainvoke({"county": county}, thread)).get("advice", f"{county}: no samples"))
