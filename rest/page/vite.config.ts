import { defineConfig } from "vite";

// The worker serves the page at / and its files at /page/, see rest/mm2py_rest/built_page.py.
export default defineConfig({
  base: "/page/",
  build: {
    target: "es2022",
    outDir: "../mm2py_rest/page",
    emptyOutDir: true,
    assetsDir: "",
    assetsInlineLimit: 0,
    license: { fileName: "licenses.md" }, // of what is in the script, for the wheel
    modulePreload: false, // one script: nothing to load ahead
  },
});
