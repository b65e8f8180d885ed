"""What a controller has to add for an impact assessment: headings with what the law asks, and none of the answers."""

from __future__ import annotations

from deniable_server.privacy.document import Note, Section, Text, ToFill

__all__ = ["section"]

_NOT_FILLED = (
    "Nothing below is filled in. The headings name what the law asks for, in our words and shortened; the software cannot "
    "know the answers. This is not legal advice, and neither the headings nor the rest of this document say whether the "
    "processing is lawful."
)

_PARTS = (
    (
        "gdpr-35",
        "GDPR, article 35: data protection impact assessment",
        "sections 3 to 11",
        (
            (
                "Whether an assessment is required, and on which list of the supervisory authority it stands or not "
                "(35(1), 35(3) to (5))"
            ),
            (
                "Systematic description of the processing and its purposes; the legal basis, and the legitimate interest "
                "if that is it (35(7)(a))"
            ),
            "Necessity and proportionality in relation to the purposes (35(7)(b))",
            "Risks to the rights and freedoms of data subjects (35(7)(c))",
            "Measures that address the risks, safeguards and their demonstration (35(7)(d))",
            "Advice of the data protection officer (35(2)), and views of data subjects or their representatives (35(9))",
            (
                "Prior consultation of the supervisory authority, where a high risk remains (36), and the date of the next "
                "review (35(11))"
            ),
        ),
    ),
    (
        "gdpr-25",
        "GDPR, article 25: data protection by design and by default",
        "sections 3 to 5",
        (
            "Why these measures, given the state of the art, cost, and the risks (25(1))",
            "What is processed by default, to what extent and for how long, and who may access it (25(2))",
        ),
    ),
    (
        "gdpr-5-1-c",
        "GDPR, article 5(1)(c): data minimisation",
        "section 3: questions, answers, segments, sampling",
        ("Why each question, each of its answers and each segment is needed, and why a coarser one would not do",),
    ),
    (
        "gdpr-5-1-e",
        "GDPR, article 5(1)(e): storage limitation",
        "section 8, and in section 3 the end of collection of each metric",
        ("Why each thing is kept for as long as it is, and who sees to its deletion",),
    ),
    (
        "pipl-55",
        "PIPL, article 55: when an impact assessment is made beforehand",
        "sections 3 and 9",
        (
            (
                "Which case applies: sensitive personal information; automated decisions; entrusting, providing or "
                "disclosing to others; providing abroad; other processing with a major impact on individuals"
            ),
            "Where the server and the store stand, who operates them, and whether anything crosses a border",
        ),
    ),
    (
        "pipl-56",
        "PIPL, article 56: what the assessment contains",
        "sections 3 to 11",
        (
            "Whether purposes and methods are lawful, legitimate and necessary",
            "Impact on the rights and interests of individuals, and security risks",
            "Whether the protective measures are lawful, effective and in proportion to the risks",
            "Where the assessment and the records of processing are kept, for three years at least",
        ),
    ),
)


def section() -> Section:
    """Write the headings for the controller to fill."""
    parts = tuple(
        Section(id_, title, (Text(f"For facts see {facts}."), *map(ToFill, asks))) for id_, title, facts, asks in _PARTS
    )
    signs = Section(
        "signed",
        "Who filled this in",
        (ToFill("Controller, contact, representative and data protection officer"), ToFill("Date, names and decision")),
    )
    words = Text("A controller who annexes this document to an impact assessment fills in the following, here or there.")
    return Section("law", "For the controller to fill in", (Note(_NOT_FILLED), words), (*parts, signs))
