"""`python -m teacher_student.app`."""

from teacher_student.app import main

main()
