"""Agent Lightning's first protocol, for agents and algorithms that still speak it: a thin face on any store.

    GET  /task                 the next rollout of the queue, as a task; ``timeout_s`` waits for one (an extension)
    GET  /resources/latest     404 where there are none
    GET  /resources/{id}       404 where there are none of that id
    POST /rollout              what became of a task: its spans are kept, then its attempt succeeds

Every store server answers these in addition to its own routes: the package's entry point in the group
``lightstream.store_routes`` brings them in.
"""
