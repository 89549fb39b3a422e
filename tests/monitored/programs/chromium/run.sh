# The browser's processes, a web worker, WebAssembly, a canvas.
cp "$FILES/page.html" .
chromium --headless --disable-gpu $CHROMIUM_OPTIONS --disable-background-networking --user-data-dir="$PWD/profile" --virtual-time-budget=20000 \
  --dump-dom "file://$PWD/page.html" 2>errors
echo "exit code $?"
grep -iE 'crash|fatal|sandbox|preload' errors | sed 's/^\[[^]]*\]//'
true
