module lictor.dev/tests/node/web

go 1.26
