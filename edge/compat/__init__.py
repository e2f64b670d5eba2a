"""Private names of libraries that the gateway needs: one module for each library.

Libraries may change private names in any release. All other packages therefore use the public names of these modules.
`tests/compat` checks each private name, and says what to do when one has changed.
"""
