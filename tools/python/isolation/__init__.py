"""What confines a program, by means of the kernel.

- `levels`: the three levels, and limits on resources
- `namespaces`: namespaces and the user within them
- `file_view`: the tree of files that programs see
- `packages`: which files of the machine are in that tree
- `landlock`: access to files, where there are no namespaces
- `seccomp`: the filters on system calls, and the judge whom they ask
- `cgroups`: memory and processes of a session, limited by the kernel
- `network`: the local network of a session
- `linux`: system calls that Python does not wrap, and what `/proc` tells of processes
"""
