"""`python -m ackd_reports`, and what spark-submit is given: the same as `ackd report`."""

import sys

from ackd_reports.command import main

if __name__ == "__main__":
    sys.exit(main())
