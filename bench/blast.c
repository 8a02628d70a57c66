/* A server that does nothing but answer: it shows how much the generators can take before they are the bottleneck.
 *
 * `blast PORT json BODY_FILE` answers every request with that body; `blast PORT sse N` with N chunk events, one
 * write each. One thread, epoll, no parsing beyond the end of a request. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

struct frame { char *bytes; size_t len; };
struct conn { int fd, next, answering; size_t sent; char in[4096]; size_t in_len; };

static struct frame *frames;
static int frame_count;

static void frame(char *bytes, size_t len) {
    frames = realloc(frames, sizeof *frames * (size_t)(frame_count + 1));
    frames[frame_count++] = (struct frame){bytes, len};
}

static void json(const char *path) {
    FILE *f = fopen(path, "rb");
    char text[65536], *out;
    if (!f) exit(2);
    size_t n = fread(text, 1, sizeof text, f);
    int len = asprintf(&out, "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %zu\r\n\r\n%.*s", n, (int)n, text);
    frame(out, (size_t)len);
    fclose(f);
}

static void sse(int n) {
    char *out, event[600];
    frame(out, (size_t)asprintf(&out, "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"));
    for (int i = 0; i < n; i++) {
        int len = snprintf(event, sizeof event,
            "id: %d\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"artifactUpdate\":{\"taskId\":\"0198f3a0-0000-7000-8000-000000000000\","
            "\"contextId\":\"0198f3a0-0000-7000-8000-000000000001\",\"artifact\":{\"artifactId\":\"a\",\"parts\":[{\"text\":\"chunk %06d \"}]},"
            "\"append\":true}}}\n\n", i + 1, i);
        frame(out, (size_t)asprintf(&out, "%x\r\n%s\r\n%s", len, event, i == n - 1 ? "0\r\n\r\n" : ""));
    }
}

static void answer(struct conn *c) {
    while (c->answering) {
        struct frame *f = &frames[c->next];
        ssize_t n = send(c->fd, f->bytes + c->sent, f->len - c->sent, MSG_NOSIGNAL);
        if (n < 0) return;
        c->sent += (size_t)n;
        if (c->sent < f->len) return;
        c->sent = 0;
        if (++c->next == frame_count) c->next = 0, c->answering--;
    }
}

static int take(struct conn *c) {
    ssize_t n;
    while ((n = recv(c->fd, c->in + c->in_len, sizeof c->in - 1 - c->in_len, 0)) > 0) {
        c->in_len += (size_t)n;
        c->in[c->in_len] = 0;
        char *end = strstr(c->in, "\r\n\r\n"), *length = strcasestr(c->in, "content-length:");
        if (!end || !length) continue;
        if (c->in_len < (size_t)(end + 4 - c->in) + (size_t)atol(length + 15)) continue;
        c->in_len = 0;
        c->answering++;
    }
    return n < 0 && errno == EAGAIN;
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    signal(SIGPIPE, SIG_IGN);
    if (!strcmp(argv[2], "json")) json(argv[3]); else sse(atoi(argv[3]));
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(argv[1]))};
    inet_pton(AF_INET, "127.0.0.1", &at.sin_addr);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), poll = epoll_create1(0), one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 1024)) return perror("blast"), 2;
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = NULL}, events[256];
    epoll_ctl(poll, EPOLL_CTL_ADD, listener, &e);
    for (;;) {
        int n = epoll_wait(poll, events, 256, -1);
        for (int i = 0; i < n; i++) {
            struct conn *c = events[i].data.ptr;
            if (!c) {
                int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
                if (fd < 0) continue;
                setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                c = calloc(1, sizeof *c);
                c->fd = fd;
                e = (struct epoll_event){.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = c};
                epoll_ctl(poll, EPOLL_CTL_ADD, fd, &e);
            } else if (!take(c)) {
                close(c->fd);
                free(c);
            } else
                answer(c);
        }
    }
}
