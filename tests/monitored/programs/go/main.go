package main

/*
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

extern int goDouble(int);

static long fill(int n) {
	long sum = 0;
	for (int i = 1; i <= n; i++) {
		unsigned char *block = malloc(i);
		memset(block, i & 255, i);
		block = realloc(block, i * 2);
		sum += block[i - 1];
		free(block);
	}
	return sum;
}

static void *foreign(void *argument) {
	return (void *)(intptr_t)goDouble((int)(intptr_t)argument);
}

// Calls into Go from a thread that Go did not create.
static int from_thread(int value) {
	pthread_t thread;
	void *result;
	pthread_create(&thread, 0, foreign, (void *)(intptr_t)value);
	pthread_join(thread, &result);
	return (int)(intptr_t)result;
}
*/
import "C"

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"os/user"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"
)

//export goDouble
func goDouble(value C.int) C.int { return value * 2 }

func main() {
	if len(os.Args) == 2 && os.Args[1] == "panic" {
		var nothing *int
		fmt.Println(*nothing)
	}
	fmt.Println(os.Args[1:])
	var sum int64
	var group sync.WaitGroup
	for i := 0; i < 64; i++ {
		group.Add(1)
		go func(i int) {
			defer group.Done()
			if i%4 == 0 {
				runtime.LockOSThread()
			}
			atomic.AddInt64(&sum, int64(C.fill(200)))
			text := C.CString(strings.Repeat("x", i))
			atomic.AddInt64(&sum, int64(C.strlen(text)))
			C.free(unsafe.Pointer(text))
			atomic.AddInt64(&sum, int64(C.from_thread(C.int(i))))
		}(i)
	}
	group.Wait()
	fmt.Println("sum", sum)
	for i := 0; i < 5; i++ {
		runtime.GC()
	}

	received := make(chan os.Signal, 1)
	signal.Notify(received, syscall.SIGUSR1)
	syscall.Kill(os.Getpid(), syscall.SIGUSR1)
	fmt.Println(<-received)

	for i := 0; i < 8; i++ {
		command := exec.Command("sh", "-c", fmt.Sprintf("cat; echo problem >&2; exit %d", i))
		command.Stdin = strings.NewReader("input ")
		output, err := command.CombinedOutput()
		fmt.Printf("%q %v\n", output, err)
	}
	bare := exec.Command("env")
	bare.Env = []string{"ONE=1"}
	output, err := bare.Output()
	fmt.Printf("%q %v\n", output, err)
	_, err = exec.LookPath("nonexistent-program")
	fmt.Println(err)
	current, err := user.Current()
	fmt.Println(current.Username, err)
	os.Exit(11)
}
