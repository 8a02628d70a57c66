/* An A2A 1.0 agent over JSON-RPC that costs next to nothing: what is measured is whoever calls it.
 *
 * `peer PORT` serves a card, answers SendMessage with a completed task that gives back the parts it got, and
 * SendStreamingMessage with a task, `working`, as many numbered chunks of one artifact as the text says ("100 burst",
 * "100 turns"; the parts themselves, if it names no number), and `completed`. A burst is handed to the socket in as few pieces as it takes; in turns each event is
 * one of its own, and other connections get theirs in between. GetTask and SubscribeToTask know every id, as ended.
 * One thread, epoll; nothing is pipelined. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define PIECE (1 << 18) /* bytes of a burst that are made at once */
#define TIME "2026-01-01T00:00:00.000Z"

struct text { const char *at; size_t len; };
struct stream { int open, turns; long next, count; char id[128], task[40], context[128]; };
struct conn { int fd, ending, waiting; char *in, *out; size_t in_len, in_cap, out_len, out_cap, sent; struct stream stream; struct conn *after; };

static int port;
static unsigned long tasks;
static struct conn *turn; /* connections whose stream goes on at the next turn */

static void *grown(void *had, size_t *cap, size_t need) {
    if (need <= *cap) return had;
    *cap = need * 2;
    return realloc(had, *cap);
}

static void add(struct conn *c, const char *bytes, size_t len) {
    c->out = grown(c->out, &c->out_cap, c->out_len + len);
    memcpy(c->out + c->out_len, bytes, len);
    c->out_len += len;
}

static void say(struct conn *c, const char *format, ...) {
    char line[2048];
    va_list values;
    va_start(values, format);
    int len = vsnprintf(line, sizeof line, format, values);
    va_end(values);
    add(c, line, len < (int)sizeof line ? (size_t)len : sizeof line - 1);
}

/* The end of the JSON value that begins at `s`. */
static const char *past(const char *s, const char *end) {
    int depth = 0;
    for (; s < end; s++) {
        if (*s == '"') {
            while (++s < end && *s != '"')
                if (*s == '\\') s++;
            if (!depth) return s + 1;
        } else if (*s == '{' || *s == '[')
            depth++;
        else if (*s == '}' || *s == ']') {
            if (!depth) return s;
            if (!--depth) return s + 1;
        } else if (*s == ',' && !depth)
            return s;
    }
    return end;
}

/* The member of that name of an object, as it is written; of length 0 if it has none. */
static struct text member(struct text object, const char *name) {
    const char *s = object.at, *end = object.at + object.len;
    size_t len = strlen(name);
    if (object.len < 2 || *s++ != '{') return (struct text){0};
    while (s < end && *s != '}') {
        while (s < end && strchr(" \t\r\n,", *s)) s++;
        const char *key = s, *key_end = s = past(s, end);
        while (s < end && strchr(" \t\r\n:", *s)) s++;
        const char *value = s;
        s = past(s, end);
        if ((size_t)(key_end - key) == len + 2 && !memcmp(key + 1, name, len)) return (struct text){value, (size_t)(s - value)};
    }
    return (struct text){0};
}

static int is(struct text value, const char *word) {
    return value.len == strlen(word) + 2 && !memcmp(value.at + 1, word, value.len - 2);
}

/* A text without its quotes, cut to what there is room for. */
static void copy(char *to, size_t room, struct text value) {
    size_t len = value.len < 2 ? 0 : value.len - 2;
    if (len >= room) len = room - 1;
    if (len) memcpy(to, value.at + 1, len);
    to[len] = 0;
}

static void card(struct conn *c) {
    char body[1024];
    int len = snprintf(body, sizeof body,
        "{\"name\":\"peer\",\"description\":\"Gives back what it got, or as many chunks as the text says\",\"version\":\"1.0.0\","
        "\"supportedInterfaces\":[{\"url\":\"http://127.0.0.1:%d/\",\"protocolBinding\":\"JSONRPC\",\"protocolVersion\":\"1.0\"}],"
        "\"capabilities\":{\"streaming\":true},\"defaultInputModes\":[\"text/plain\"],\"defaultOutputModes\":[\"text/plain\"],"
        "\"skills\":[{\"id\":\"echo\",\"name\":\"echo\",\"description\":\"Gives back what it got\",\"tags\":[\"bench\"]}]}", port);
    say(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nCache-Control: max-age=3600\r\nETag: \"1\"\r\nContent-Length: %d\r\n\r\n", len);
    add(c, body, (size_t)len);
}

/* One event: an HTTP chunk around an SSE frame. What is formatted comes before `parts` and `}}}`, if there are any. */
static void event(struct conn *c, struct text parts, const char *format, ...) {
    static const char end[] = "}\n\n", artifact_end[] = "}}}";
    struct stream *s = &c->stream;
    char start[1024];
    int at = snprintf(start, sizeof start, "id: %ld\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":", ++s->next, s->id);
    va_list values;
    va_start(values, format);
    at += vsnprintf(start + at, sizeof start - (size_t)at, format, values);
    va_end(values);
    say(c, "%zx\r\n", (size_t)at + (parts.len ? parts.len + sizeof artifact_end - 1 : 0) + sizeof end - 1);
    add(c, start, (size_t)at);
    if (parts.len) {
        add(c, parts.at, parts.len);
        add(c, artifact_end, sizeof artifact_end - 1);
    }
    add(c, end, sizeof end - 1);
    add(c, "\r\n", 2);
}

/* The next events of a stream: one, or as many as a burst may hold. */
static void go_on(struct conn *c, struct text parts) {
    static const struct text none;
    struct stream *s = &c->stream;
    do {
        long number = s->next - 2;
        if (s->next == 0)
            event(c, none, "{\"task\":{\"id\":\"%s\",\"contextId\":\"%s\",\"status\":{\"state\":\"TASK_STATE_SUBMITTED\",\"timestamp\":\"" TIME "\"}}}", s->task, s->context);
        else if (s->next == 1 || number == s->count) {
            const char *state = number == s->count ? "COMPLETED" : "WORKING";
            event(c, none, "{\"statusUpdate\":{\"taskId\":\"%s\",\"contextId\":\"%s\",\"status\":{\"state\":\"TASK_STATE_%s\",\"timestamp\":\"" TIME "\"}}}", s->task, s->context, state);
            if (number == s->count) {
                add(c, "0\r\n\r\n", 5);
                s->open = 0;
            }
        } else if (parts.len)
            event(c, parts, "{\"artifactUpdate\":{\"taskId\":\"%s\",\"contextId\":\"%s\",\"lastChunk\":true,\"artifact\":{\"artifactId\":\"echo\",\"parts\":", s->task, s->context);
        else
            event(c, none, "{\"artifactUpdate\":{\"taskId\":\"%s\",\"contextId\":\"%s\",\"artifact\":{\"artifactId\":\"chunks\",\"parts\":[{\"text\":\"chunk %06ld \"}]},"
                "\"append\":%s,\"lastChunk\":%s}}", s->task, s->context, number, number ? "true" : "false", number == s->count - 1 ? "true" : "false");
    } while (s->open && !s->turns && c->out_len < PIECE);
}

static void begin(struct conn *c, struct text id, struct text context, struct text parts) {
    struct text text = member((struct text){parts.at + 1, parts.len > 2 ? parts.len - 2 : 0}, "text");
    struct stream *s = &c->stream;
    char said[64];
    *s = (struct stream){.open = 1};
    snprintf(s->id, sizeof s->id, "%.*s", (int)id.len, id.at);
    snprintf(s->task, sizeof s->task, "00000000-0000-4000-8000-%012lx", ++tasks);
    copy(s->context, sizeof s->context, context);
    if (!*s->context) strcpy(s->context, s->task);
    copy(said, sizeof said, text);
    s->count = atol(said);
    s->turns = s->count && strstr(said, "turns");
    say(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n");
    if (s->count)
        go_on(c, (struct text){0});
    else
        s->count = 1, go_on(c, parts);
}

static void whole(struct conn *c, struct text id, const char *result, size_t len) {
    static const char before[] = "{\"jsonrpc\":\"2.0\",\"id\":", between[] = ",\"result\":";
    say(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
        sizeof before + id.len + sizeof between + len - 1);
    add(c, before, sizeof before - 1);
    add(c, id.at, id.len);
    add(c, between, sizeof between - 1);
    add(c, result, len);
    add(c, "}", 1);
}

static void answer(struct conn *c, struct text call) {
    static char *result;
    static size_t cap;
    struct text id = member(call, "id"), method = member(call, "method"), params = member(call, "params");
    struct text message = member(params, "message"), context = member(message, "contextId"), parts = member(message, "parts");
    char task[128], in[128];
    if (is(method, "SendStreamingMessage")) {
        begin(c, id, context, parts);
        return;
    }
    int sent = is(method, "SendMessage");
    if (sent)
        snprintf(task, sizeof task, "00000000-0000-4000-8000-%012lx", ++tasks);
    else
        copy(task, sizeof task, member(params, "id"));
    copy(in, sizeof in, context);
    result = grown(result, &cap, parts.len + 1024);
    int len = snprintf(result, cap, "%s{\"id\":\"%s\",\"contextId\":\"%s\",\"status\":{\"state\":\"TASK_STATE_COMPLETED\",\"timestamp\":\"" TIME "\"}%s%.*s%s}%s",
        sent ? "{\"task\":" : "", task, *in ? in : task, sent ? ",\"artifacts\":[{\"artifactId\":\"echo\",\"parts\":" : "",
        sent ? (int)parts.len : 0, parts.at ? parts.at : "", sent ? "}]" : "", sent ? "}" : "");
    whole(c, id, result, (size_t)len);
}

/* Answers the requests that are there as a whole; 0 if what came is none. */
static int serve(struct conn *c) {
    size_t used = 0;
    while (used < c->in_len && !c->stream.open) {
        char *at = c->in + used, *end = memmem(at, c->in_len - used, "\r\n\r\n", 4);
        if (!end) break;
        *end = 0;
        char *length = strcasestr(at, "\r\ncontent-length:");
        size_t head = (size_t)(end + 4 - at), body = length ? (size_t)atol(length + 17) : 0;
        *end = '\r';
        if (c->in_len - used < head + body) break;
        if (!memcmp(at, "GET ", 4))
            card(c);
        else if (!memcmp(at, "POST ", 5) && body > 2)
            answer(c, (struct text){at + head, body});
        else
            return 0;
        used += head + body;
    }
    memmove(c->in, c->in + used, c->in_len -= used);
    return 1;
}

static int take(struct conn *c) {
    for (;;) {
        c->in = grown(c->in, &c->in_cap, c->in_len + 65536);
        ssize_t n = recv(c->fd, c->in + c->in_len, c->in_cap - c->in_len - 1, 0);
        if (n < 0) return errno == EAGAIN;
        if (n == 0) return 0;
        c->in_len += (size_t)n;
        c->in[c->in_len] = 0;
    }
}

/* Writes what there is; a stream goes on when all is written. 0 when the connection is broken. */
static int give(struct conn *c) {
    for (;;) {
        while (c->sent < c->out_len) {
            ssize_t n = send(c->fd, c->out + c->sent, c->out_len - c->sent, MSG_NOSIGNAL);
            if (n < 0) return errno == EAGAIN;
            c->sent += (size_t)n;
        }
        c->sent = c->out_len = 0;
        if (!c->stream.open) return 1;
        if (c->stream.turns) {
            if (!c->waiting) c->waiting = 1, c->after = turn, turn = c;
            return 1;
        }
        go_on(c, (struct text){0});
    }
}

static int turned(struct conn *c) { return take(c) && (c->stream.open || serve(c)) && give(c); }

static void drop(struct conn *c) {
    for (struct conn **at = &turn; *at; at = &(*at)->after)
        if (*at == c) {
            *at = c->after;
            break;
        }
    close(c->fd);
    free(c->in);
    free(c->out);
    free(c);
}

int main(int argc, char **argv) {
    if (argc != 2) return fprintf(stderr, "usage: peer PORT\n"), 2;
    signal(SIGPIPE, SIG_IGN);
    port = atoi(argv[1]);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port)};
    inet_pton(AF_INET, "127.0.0.1", &at.sin_addr);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), poll = epoll_create1(0), one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 1024)) return perror("peer"), 2;
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = NULL}, events[256];
    epoll_ctl(poll, EPOLL_CTL_ADD, listener, &e);
    for (;;) {
        int n = epoll_wait(poll, events, 256, turn ? 0 : -1);
        struct conn *due = turn;
        turn = NULL;
        for (struct conn *c = due, *next; c; c = next) {
            next = c->after;
            c->waiting = 0;
            go_on(c, (struct text){0});
            give(c); /* a broken one is found by epoll */
        }
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
            } else if (!turned(c))
                drop(c);
        }
    }
}
