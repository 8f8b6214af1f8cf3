"""The console: a node's state and its topics as pages for a browser.

Pages are made by templates on the server; scripts draw charts and follow what changes. A page reads through
the same parts as the HTTP interface, and an action calls the same route as a request of a program: so rights,
checks and refusals are the same. A browser signs in with a token, and a cookie stands for it from then on.
"""
