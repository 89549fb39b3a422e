# The compiler and linker, then a program with cgo: C memory from many threads, calls back into Go, signals, started programs.
export GOCACHE=$PWD/cache GOPATH=$PWD/path GOFLAGS=-mod=mod GO111MODULE=on CGO_ENABLED=1 GOPROXY=off GOTOOLCHAIN=local
cp "$FILES/main.go" .
printf 'module local/program\n\ngo 1.19\n' >go.mod
go vet . && go build -p 2 -o program . || exit 1
./program a 'b c'
echo "exit code $?"
GODEBUG=asyncpreemptoff=1 GOMAXPROCS=1 ./program panic 2>&1 | head -n 1
