"""``python -m rest``: the REST process of a worker, which starts it."""

from rest.server import main

if __name__ == "__main__":
    main()
