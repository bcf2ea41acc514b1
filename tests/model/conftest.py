"""One line for each variant of a model, at the end of the run."""


def pytest_terminal_summary(terminalreporter):
    lines = [text for reports in terminalreporter.stats.values() for report in reports
             if getattr(report, "when", "") == "call" for name, text in report.user_properties if name == "model"]
    if lines:
        terminalreporter.section("models")
    for text in lines:
        terminalreporter.write_line(text)
