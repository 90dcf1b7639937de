"""What a workflow has done so far, and how its code is matched against it: pure, no I/O, no clock.

* `location`: where an event lies, and how that place is named, ordered and packed.
* `failure`: an exception as data.
* `events`: the records, one per finished step, and their encoding.
* `history`: the rows of one workflow, grouped by the place they belong to.
* `cursor`: one pass of the code over the events of one place.
"""
