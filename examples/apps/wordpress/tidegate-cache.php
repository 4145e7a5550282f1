<?php
/*
 * Plugin Name: Tidegate Cache
 * Description: Has a shared cache keep pages for visitors, and drop those of a post when it changes (RFC 9111, RFC 9875).
 *
 * Goes into wp-content/mu-plugins. A page names its groups in Cache-Groups; the answer to the request that changes a post names those
 * to drop in Cache-Group-Invalidation. The cache reads that in passing: nothing has to be configured here, there is no token, and no
 * purge. What changes without an unsafe request (a link that trashes a post, wp-cron, WP-CLI) is told by one POST at the end.
 */
namespace Tidegate;

function invalidate(array $groups): void {
    static $all = [], $is_asked = false;
    $all = array_slice(array_unique(array_merge($all, array_values($groups))), 0, 100);
    $is_unsafe = !in_array($_SERVER['REQUEST_METHOD'] ?? 'GET', ['GET', 'HEAD'], true);
    if ($is_unsafe && !headers_sent()) {
        header('Cache-Group-Invalidation: "' . implode('", "', $all) . '"');
    } elseif (!$is_asked) {
        $is_asked = add_action('shutdown', function () use (&$all) {
            $list = implode(' ', $all);
            $body = ['tidegate_groups' => $list, 'tidegate_key' => hash_hmac('sha256', $list, wp_salt())];
            wp_remote_post(home_url('/'), ['timeout' => 2, 'redirection' => 0, 'body' => $body]);
        });
    }
}

add_action('init', function () {
    $list = $_POST['tidegate_groups'] ?? '';
    if (is_string($list) && $list && hash_equals(hash_hmac('sha256', $list, wp_salt()), (string) $_POST['tidegate_key'])) {
        invalidate(explode(' ', $list));
        exit;
    }
});

/** The lists that a post is in: of each category and tag, and of who wrote it. */
function lists_of(\WP_Post $post): array {
    $terms = wp_get_object_terms($post->ID, get_object_taxonomies($post->post_type), ['fields' => 'tt_ids']);
    return array_merge(preg_filter('/^/', 'term-', is_array($terms) ? $terms : []), ["author-$post->post_author"]);
}

add_action('template_redirect', function () {
    if (is_user_logged_in() || is_404() || is_search() || is_preview() || post_password_required() || defined('DONOTCACHEPAGE')) {
        return;
    }
    $groups = array_merge(['site'], preg_filter('/^/', 'post-', wp_list_pluck($GLOBALS['wp_query']->posts, 'ID')));
    $of = get_queried_object();
    $groups = array_merge($groups, match (true) {
        is_singular() => [],
        $of instanceof \WP_Term => ["term-$of->term_taxonomy_id"],
        $of instanceof \WP_User => ["author-$of->ID"],
        default => ['front'],
    });
    header('Cache-Control: public, max-age=0, s-maxage=3600');
    header('Cache-Groups: "' . implode('", "', array_slice($groups, 0, 100)) . '"');
}, 99);

// The post itself whenever it or a comment changes, all for a menu or template; lists that have it when it is to be seen, or was.
add_action('clean_post_cache', fn($id, $post) =>
    invalidate([preg_match('/^(wp_|nav_menu)/', $post->post_type) ? 'site' : "post-$id"]), 10, 2);
add_action('transition_post_status', function ($new, $old, $post) {
    if (($new === 'publish' || $old === 'publish') && is_post_type_viewable($post->post_type)) {
        invalidate(array_merge(['front'], lists_of($post)));
    }
}, 10, 3);
add_action('set_object_terms', fn($id, $terms, $new, $taxonomy, $append, $old) =>
    $new == $old || invalidate(preg_filter('/^/', 'term-', array_merge($new, $old))), 10, 6);
foreach (['edited_term', 'delete_term', 'profile_update', 'switch_theme', 'customize_save_after', 'wp_update_nav_menu',
    'permalink_structure_changed', 'activated_plugin', 'deactivated_plugin', 'update_option_blogname',
    'update_option_blogdescription', 'update_option_sidebars_widgets'] as $hook) {
    add_action($hook, fn() => invalidate(['site']));
}
