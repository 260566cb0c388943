module lictor.dev/hack/tools/formats

go 1.26.0
