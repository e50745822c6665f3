"""How the terminal view looks: the terminal's own colours, and nothing that only a colour says."""

STYLE = """
Screen {
    background: ansi_default;
    color: ansi_default;
    layout: vertical;
}
#head,
#trouble,
#about {
    width: 100%;
    height: auto;
    text-wrap: nowrap;
    text-overflow: ellipsis;
}
#head {
    text-style: bold;
    height: 1;
}
#trouble {
    color: ansi_red;
    text-style: bold;
    max-height: 6;
    text-wrap: wrap;
}
DataTable {
    height: 1fr;
    background: ansi_default;
    color: ansi_default;
    scrollbar-size: 1 1;
}
DataTable > .datatable--header {
    text-style: bold underline;
    background: ansi_default;
    color: ansi_default;
}
DataTable > .datatable--cursor,
DataTable:focus > .datatable--cursor {
    text-style: reverse;
    background: ansi_default;
    color: ansi_default;
}
DataTable > .datatable--hover {
    background: ansi_default;
}
#below {
    height: auto;
    max-height: 9;
    border-top: ascii ansi_default;
}
#messages {
    height: 2fr;
}
#partitions {
    height: 1fr;
    min-height: 4;
    border-top: ascii ansi_default;
}
#sidecars {
    height: auto;
    max-height: 8;
    border-top: ascii ansi_default;
}
#filter {
    height: 1;
    border: none;
    padding: 0;
    background: ansi_default;
    text-style: underline;
}
#facts {
    width: 100%;
    height: auto;
}
#page {
    height: 1fr;
}
Footer {
    background: ansi_default;
    color: ansi_default;
}
"""
