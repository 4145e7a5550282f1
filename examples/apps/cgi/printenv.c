/* A CGI program in C: prints its environment and what it was sent. cc -O2 -o printenv.cgi printenv.c */
#include <stdio.h>

extern char **environ;

int main(void) {
    char buffer[4096];
    size_t count, length = 0;

    fputs("Content-Type: text/plain\n\n", stdout);
    for (char **entry = environ; *entry; entry++)
        puts(*entry);
    while ((count = fread(buffer, 1, sizeof buffer, stdin)) > 0)
        length += count;
    printf("content of %zu bytes\n", length);
    return 0;
}
