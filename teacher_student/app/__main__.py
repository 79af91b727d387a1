"""`python -m teacher_student.app`."""

from teacher_student.app import main

if __name__ == "__main__":
    main()
