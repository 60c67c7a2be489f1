import sys

from gsf.cli import main

sys.exit(main())
