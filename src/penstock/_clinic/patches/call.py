"""Patches of one call: an option of a loader, a time-out, a number of threads."""

from __future__ import annotations

from typing import Any

import libcst as cst

from penstock._clinic.finding import Fix
from penstock._clinic.patches.page import Page, PatchImpossible, dotted

TIMEOUT_S = 30  # longer than any answer that is still wanted
_TAKE_TIMEOUT = ("create_connection", "urlopen", "get", "post", "put", "head", "request", "HTTPConnection")


def set_option(page: Page, fix: Fix) -> str:
    """Give an option of the loader that is made at a line another value."""
    assert fix.site is not None
    call = page.at(cst.Call, fix.site.line, makes_a_loader)
    for name, value in _options(fix.arguments).items():
        call = with_keyword(call, name, repr(value))
    return page.replaced((page.at(cst.Call, fix.site.line, makes_a_loader), call)).code


def set_timeout(page: Page, fix: Fix) -> str:
    """Give a call that reads from the network a time-out."""
    assert fix.site is not None
    try:
        call = page.at(cst.Call, fix.site.line, _can_time_out)
    except PatchImpossible:
        # The read is at this line, the connection was made elsewhere: in the same function, or nowhere.
        call = _made_nearby(page, fix.site.line)
    if any(arg.keyword is not None and arg.keyword.value == "timeout" for arg in call.args):
        raise PatchImpossible("it has a time-out")
    return page.replaced((call, with_keyword(call, "timeout", str(TIMEOUT_S)))).code


def set_threads(page: Page, fix: Fix) -> str:
    """Have `set_num_threads` ask for one thread."""
    assert fix.site is not None
    calls = [
        call
        for call in page.all(cst.Call, page.function_at(fix.site.line))
        if dotted(call.func).split(".")[-1] in {"set_num_threads", "setNumThreads"} and len(call.args) == 1
    ]
    if not calls:
        raise PatchImpossible("no number of threads is set there")
    one = cst.Arg(cst.Integer("1"))
    return page.replaced(*((call, call.with_changes(args=[one])) for call in calls)).code


def with_keyword(call: cst.Call, name: str, value: str) -> cst.Call:
    """The call with `name=value`, in the place of an older value if there is one."""
    new = cst.parse_expression(value)
    for place, arg in enumerate(call.args):
        if arg.keyword is not None and arg.keyword.value == name:
            args = list(call.args)
            args[place] = arg.with_changes(value=new)
            return call.with_changes(args=args)
    if any(arg.star == "**" for arg in call.args):
        raise PatchImpossible("the option may come from a dictionary")
    return call.with_changes(args=[*_spaced(call), _keyword(call, name, new)])


def _spaced(call: cst.Call) -> list[cst.Arg]:
    """The arguments, the last followed by a comma as those before it are."""
    args = list(call.args)
    if args and not isinstance(args[-1].comma, cst.Comma):
        between = args[-2].comma if len(args) > 1 else cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
        args[-1] = args[-1].with_changes(comma=between, whitespace_after_arg=cst.SimpleWhitespace(""))
    elif args and isinstance(args[-1].comma, cst.Comma) and len(args) > 1:
        args[-1] = args[-1].with_changes(comma=args[-2].comma)
    return args


def _keyword(call: cst.Call, name: str, value: cst.BaseExpression) -> cst.Arg:
    last = call.args[-1] if call.args else None
    tail = cst.MaybeSentinel.DEFAULT if last is None else last.comma
    after = cst.SimpleWhitespace("") if last is None else last.whitespace_after_arg
    no_space = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
    return cst.Arg(value, cst.Name(name), equal=no_space, comma=tail, whitespace_after_arg=after)


def _options(arguments: dict[str, Any]) -> dict[str, Any]:
    """`{"option": name, "new": value}`, or names and values themselves."""
    if "option" in arguments:
        return {arguments["option"]: arguments["new"]}
    return {name: value for name, value in arguments.items() if name not in {"old", "new", "loader"}}


def makes_a_loader(call: cst.Call) -> bool:
    """Whether a call looks like one that makes a loader."""
    last = dotted(call.func).split(".")[-1]
    keywords = {arg.keyword.value for arg in call.args if arg.keyword is not None}
    return last.endswith(("DataLoader", "Loader")) or "num_workers" in keywords


def _can_time_out(call: cst.Call) -> bool:
    return dotted(call.func).split(".")[-1] in _TAKE_TIMEOUT and "." in dotted(call.func)


def _made_nearby(page: Page, line: int) -> cst.Call:
    calls = [call for call in page.all(cst.Call, page.function_at(line)) if _can_time_out(call)]
    if len(calls) != 1:
        raise PatchImpossible("no call there takes a time-out")
    return calls[0]
