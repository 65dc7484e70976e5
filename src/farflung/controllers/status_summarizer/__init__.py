"""The status summarizer: what all copies of an object say together, where the object is described.

    values      how copies and what is said of them are named
    naming      what summaries are called, and of which objects there are any
    digest      what counts of one copy
    verdicts    what is wrong with it, by its own account
    counting    numbers, words and conditions over many copies
    tally       all copies of one object, kept up to date one by one
    questions   what StatusCollectors ask
    collecting  their answers
    cells       the values in them
    freshness   what syncers say of themselves, and how old it is
    summaries   all summaries, as they should be
    returning   the status of the only copy, where the object is described

All of these are pure.  The others do what they say:

    writing     summaries
    asking      whether StatusCollectors can be understood
    giving_back the status of the only copy
    controller  all of it at work, beside whoever else listens (placement_translator/listening)
"""
